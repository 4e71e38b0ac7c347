"""The REST API of figures of incidents."""
