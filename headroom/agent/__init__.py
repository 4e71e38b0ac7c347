"""The node agent: reads the machine, keeps what it read on disk, and hands it to the server."""
