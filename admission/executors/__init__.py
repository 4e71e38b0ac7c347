"""Executors: they start, signal and watch the work of attempts."""
