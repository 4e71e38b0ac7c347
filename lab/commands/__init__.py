"""The commands of ``python -m lab`` that play: the matrix, one scenario, and traces."""
