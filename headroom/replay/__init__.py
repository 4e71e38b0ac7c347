"""Plays recordings of real machines into a fleet made for them, through the public API."""
