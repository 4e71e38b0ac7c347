"""Whether the sources that tell of the same power agree."""
