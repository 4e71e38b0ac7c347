class NetBoxError(Exception):
    """NetBox could not be read. The message says where to look."""
