"""What cost most of a span of time, and the intervention that pays first."""
