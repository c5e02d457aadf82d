"""What makes snapshots, and the only code that does: append, retain, summaries, the guarded commit."""
