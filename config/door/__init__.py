"""The front door: the RSGI application between granian and Django.

Headers are looked at before a body is read, bodies are read on an event loop under a deadline, and
only whole requests get a thread. docs/explanation/the-front-door.md tells why.
"""
