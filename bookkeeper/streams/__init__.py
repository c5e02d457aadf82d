"""Spark checkpoints and the registry of consumers: which snapshots each consumer still needs."""
