"""The node agent: reads the machine, keeps its readings on disk, and pushes them to the server."""
