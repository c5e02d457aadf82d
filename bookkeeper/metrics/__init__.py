"""What the daemon knows of itself: figures, their history, and what is wrong now."""
