"""What became of limits that agents were asked to set, as they report it."""
