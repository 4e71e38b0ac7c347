"""Failures of the fleet: read from what was recorded, attributed, and turned into rates."""
