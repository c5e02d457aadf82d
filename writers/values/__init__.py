"""Values of JSON, of texts and of Arrow as those of the table's columns, and what Iceberg makes of them."""
