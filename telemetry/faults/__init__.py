"""Errors inside of GPUs: Xid errors that kernels log, and uncorrected memory errors."""
