"""Faults that can act on a command on a real machine."""
