"""The REST API of rules."""
