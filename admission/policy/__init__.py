"""The admission policy in force, as a versioned document, and what shadows of it would decide."""
