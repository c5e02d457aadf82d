"""The `writer` command. What is heavy is imported by the command that needs it: `--help` is instant."""

from writers.cli.main import main

__all__ = ["main"]
