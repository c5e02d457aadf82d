"""Wrappers that see every operation of storage and catalog, and break the one they are told to."""
