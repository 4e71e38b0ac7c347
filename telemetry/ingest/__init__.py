"""The ways in besides the fast one for good batches: what is half wrong, Prometheus, OpenTelemetry.

What speaks another language than the telemetry batch ends as one on the same stream.
"""
