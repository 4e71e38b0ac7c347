"""The agent's sources besides its GPUs and its host, a module for each kind."""
