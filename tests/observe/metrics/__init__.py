"""Tests of what the daemon knows of itself."""
