"""The commit engine."""
