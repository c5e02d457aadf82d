"""Tests of what the daemon serves."""
