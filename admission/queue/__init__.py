"""What the last cycle said of the jobs that wait, in Redis and in the database."""
