"""Jobs, phases, attempts and projects: requests of people, and their progress."""
