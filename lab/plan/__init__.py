"""``headroom plan``: the laws of ``physics/`` on the command line, one command for each."""
