"""Scenes: what one process does from a prepared lake on, to be crashed and disturbed at each of its operations."""
