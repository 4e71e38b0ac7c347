"""Figures: rows of readings on one time axis, with what happened meanwhile."""
