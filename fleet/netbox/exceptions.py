class NetBoxError(Exception):
    """NetBox could not be read. The message says what to look at."""
