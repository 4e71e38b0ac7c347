"""Roll-ups: what was read within each minute and each hour, in one row for each thing."""
