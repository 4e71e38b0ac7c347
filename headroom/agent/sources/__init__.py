"""What the agent reads besides its GPUs and its host, a module for each kind."""
