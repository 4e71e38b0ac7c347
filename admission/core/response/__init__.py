"""What running jobs do when power, heat or their site falls short."""
