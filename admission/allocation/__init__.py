"""The resources that open attempts hold, read from the database."""
