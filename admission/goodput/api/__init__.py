"""The REST API of goodput."""
