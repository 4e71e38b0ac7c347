"""What happened, as annotations for charts of others."""
