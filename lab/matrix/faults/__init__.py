"""What can be done to a command on a real machine."""
