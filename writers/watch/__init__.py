"""Objects that others drop below a prefix become rows, each version once."""
