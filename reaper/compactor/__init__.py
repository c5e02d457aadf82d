"""The embedded compactor: many small files of one partition become one, by a rewrite that the bookkeeper commits."""
