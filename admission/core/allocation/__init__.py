"""What open attempts hold and reserve: GPUs, watts, traffic."""
