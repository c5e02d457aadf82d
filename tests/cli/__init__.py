"""The bookkeeper command, as a person and a script use it."""
