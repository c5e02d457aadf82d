"""The history of `main`, and what else expiry must know of its readers: consumers and Spark's checkpoints."""
