"""Resources that open attempts hold and reserve: GPUs, watts, traffic."""
