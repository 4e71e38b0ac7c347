"""Service levels of admission: declared, measured from events, with their error budget."""
