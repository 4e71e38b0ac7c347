"""The commands of ``python -m sim`` that play: the matrix, one scenario, and traces."""
