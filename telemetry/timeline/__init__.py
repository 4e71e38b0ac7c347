"""Timelines: what :mod:`telemetry.series` is made of."""
