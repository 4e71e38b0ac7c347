"""What is usual of jobs, in normal hours and in degraded ones, by project, phase and place."""
