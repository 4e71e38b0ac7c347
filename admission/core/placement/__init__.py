"""Find GPUs for a gang within all limits, or say why there are none."""
