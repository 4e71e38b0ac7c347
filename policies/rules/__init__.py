"""Conditions on headroom, in versions, and what they do."""
