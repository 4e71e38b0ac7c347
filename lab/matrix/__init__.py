"""The constraint matrix: scenarios, what is expected of a run, and results."""
