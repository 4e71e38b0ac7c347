"""Limits in force: the only way in which policy touches the fleet."""
