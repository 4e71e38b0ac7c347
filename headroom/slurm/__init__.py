"""The bridge between Slurm and the server: it stands beside slurmctld."""
