"""The status of the queue after the last cycle, in Redis and in the database."""
