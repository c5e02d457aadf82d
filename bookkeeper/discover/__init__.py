"""How new txlogs are noticed. Only the daemon imports it."""
