"""Attempts on one time axis: what was read of them, and what was done to them."""
