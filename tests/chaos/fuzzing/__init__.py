"""Mutated txlogs: how they are made, and a second reader that shares no code with ours."""
