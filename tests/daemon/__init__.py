"""The tick, whole: real SQLite catalog, real files."""
