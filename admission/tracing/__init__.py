"""What became of jobs, as traces for a collector of OpenTelemetry."""
