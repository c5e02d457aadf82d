"""The history of `main`, and what else expiry must know of those who read it: consumers and Spark's checkpoints."""
