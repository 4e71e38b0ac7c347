"""Roll-ups: the readings of each minute and each hour, in one row for each thing."""
