"""Headroom: budget less load, by scope and dimension."""
