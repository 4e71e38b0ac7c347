"""Where policies are tried: a simulated fleet, worlds, scenarios, the constraint matrix, traces."""
