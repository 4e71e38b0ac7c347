"""Incidents: firings that belong together, their owners, and notifications of them."""
