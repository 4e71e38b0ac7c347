"""The REST API of timelines of jobs."""
