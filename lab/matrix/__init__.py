"""The constraint matrix: scenarios, their expectations of a run, and results."""
