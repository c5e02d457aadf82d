"""The columns of a new table from a file of data: what its values are, and what fits them."""
