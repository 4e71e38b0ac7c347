"""Jobs as other schedulers write them: batch scripts of Slurm, manifests of Kubernetes. Pure."""
