"""Versioned steps that answer an incident, and their runs."""
