"""The lowest limits that drivers take, as shares of what is written on a GPU."""

__all__ = ["LEAST_CLOCK_SHARE", "LEAST_POWER_SHARE"]

#: No cap is below this share of what a GPU is rated for, nor below what it draws when idle: no
#: driver sets it (those of the H100 and the H200 take 200 of 700 W and more), and by the power
#: curves it is about what a GPU at work draws at its lowest clock, so that lower ones do not hold.
LEAST_POWER_SHARE = 200.0 / 700.0
#: The same of its highest clock.
LEAST_CLOCK_SHARE = 0.1
