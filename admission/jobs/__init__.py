"""Jobs, phases, attempts and projects: what people ask for, and what has become of it."""
