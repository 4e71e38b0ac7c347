"""The bridge between Kueue and the server: a controller of admission checks."""
