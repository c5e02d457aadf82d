"""Tests of the bytes: Avro containers, manifest entries, golden files."""
