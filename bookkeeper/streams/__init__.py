"""Spark checkpoints and the registry of consumers: who still needs which snapshot."""
