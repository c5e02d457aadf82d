"""Command line manners shared by all programs: rows, errors, logs, progress, options, stopping."""
