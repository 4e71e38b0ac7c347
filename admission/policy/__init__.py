"""The admission policy in force, as a versioned document, and the decisions of its shadows."""
