"""Timelines: the parts that :mod:`telemetry.series` is made of."""
