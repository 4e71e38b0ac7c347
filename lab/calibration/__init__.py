"""The twin beside real machines: each quantity as measured, as simulated, and the error.

Constants of the twin (:mod:`lab.hardware`, :mod:`lab.training.measured`) are fitted to published
measurements; what is compared here is, wherever there is enough of it, data that no constant was
fitted to. `docs/explanation/calibration.md` holds the errors.
"""
