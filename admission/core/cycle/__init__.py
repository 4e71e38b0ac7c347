"""Decide which jobs start now, which are preempted, and why the others wait."""
