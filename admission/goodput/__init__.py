"""Where the time of the GPUs of jobs went, by what was recorded of them."""
