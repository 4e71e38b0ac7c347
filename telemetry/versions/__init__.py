"""The versions of what nodes run, as their agents report them."""
