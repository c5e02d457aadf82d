"""What the daemon serves over HTTP."""
