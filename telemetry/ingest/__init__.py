"""Ingest besides the fast path: batches with bad rows, Prometheus remote write, OpenTelemetry.

What speaks another language than the telemetry batch ends as one on the same stream.
"""
