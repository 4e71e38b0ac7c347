"""Stand-ins for a Kubernetes cluster with Kueue: an API server, and the order of Kueue's states."""
