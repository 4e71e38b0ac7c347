"""The REST API of directives, of fallback and of advice."""
