"""Directives to running jobs, decided over whatever store keeps them. Pure."""
