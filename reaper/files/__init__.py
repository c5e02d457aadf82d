"""Which files may be deleted, what still names them, and where they lie."""
