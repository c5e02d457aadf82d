"""What the daemon knows of itself: metrics, their history, and what is wrong now."""
