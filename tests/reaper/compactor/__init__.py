"""The embedded compactor."""
