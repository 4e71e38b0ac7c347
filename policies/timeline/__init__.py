"""Incidents on one time axis: what was read at their places, and what was done about them."""
