"""How new txlogs are found. Only the daemon imports it."""
