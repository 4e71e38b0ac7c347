"""What follows when a part of the fleet fails, asked before it does."""
