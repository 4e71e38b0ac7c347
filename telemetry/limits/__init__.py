"""Reports of agents on the limits that they were asked to set."""
