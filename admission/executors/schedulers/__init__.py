"""Schedulers that people have already: their jobs and nodes, and what is wanted of them."""
