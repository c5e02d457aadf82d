"""Pure bytes to Iceberg and back: Avro files, manifest entries, bounds, Parquet footers. No I/O."""
