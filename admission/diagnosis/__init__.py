"""From a slow, waiting or failed job to what binds it and what to move."""
