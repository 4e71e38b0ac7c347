"""Rules: conditions on headroom, in versions, and their effects."""
