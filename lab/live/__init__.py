"""Runs against a server through its public API: scenarios on a twin that it watches, and jobs."""
