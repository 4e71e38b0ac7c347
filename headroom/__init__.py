"""Headroom outside the server: wire contracts, API client, command line, node agent, replay."""

__version__ = "0.1.0"
