"""What the server and the bridges of schedulers (Slurm, Kueue) say to each other."""
