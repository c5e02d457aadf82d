"""
The second half of docs/cli.md, made from the commands themselves: `python -m tests.cli.reference` writes it.
"""

from pathlib import Path

import click

from bookkeeper.console import errors
from tests.cli.commands import Typed, commands

DOC = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN = "<!-- made by `python -m tests.cli.reference`; what is below is what --help says -->\n"
_COLUMNS = 100


def exit_codes() -> str:
    """The table in the docstring of the one place where errors become exit codes."""
    return (errors.__doc__ or "").partition("\n| exit")[2].strip()


def shown(path: Typed, command: click.Command) -> str:
    """The help of a command as a section."""
    context = click.Context(command, info_name=" ".join(path), terminal_width=_COLUMNS, max_content_width=_COLUMNS)
    return f"{'##' if len(path) == 1 else '###'} {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```\n"


def renewed(text: str) -> str:
    """The page with its generated half as it should be."""
    codes = f"| exit {exit_codes()}\n"
    sections = "\n".join(shown(path, command) for path, command in commands())
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n## Exit codes\n\n{codes}\n{sections}"


if __name__ == "__main__":
    DOC.write_text(renewed(DOC.read_text("utf-8")), "utf-8")
