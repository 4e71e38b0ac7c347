"""What is left of each budget, by scope and dimension."""
