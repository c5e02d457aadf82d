"""Values in: lines and Arrow rows as the table's columns, and what Iceberg makes of them."""
