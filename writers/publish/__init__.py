"""Publishing: a run's txlogs in their sequence, its positions, and how far behind the bookkeeper is."""
