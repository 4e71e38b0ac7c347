"""The REST API of jobs, projects, classes and the queue."""
