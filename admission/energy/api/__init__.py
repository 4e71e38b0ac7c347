"""The REST API of energy."""
