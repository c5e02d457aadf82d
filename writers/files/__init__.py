"""Data files out: Parquet or Avro, split by partition, complete in memory before they are uploaded."""
