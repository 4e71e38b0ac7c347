"""Runs jobs on the machine that it is on: only where that was allowed."""
