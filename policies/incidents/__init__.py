"""What went wrong, who looks after it, and who hears of it."""
