"""An Apache Iceberg table as a queue: writers, one committer, a reaper, Spark consumers."""
