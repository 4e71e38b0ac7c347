"""What running jobs are told, decided over whatever store keeps it. Pure."""
