"""docs/cli.md says what the commands say."""

import subprocess
import sys

import click

from tests.cli import reference
from tests.cli.commands import commands


def test_the_page_is_what_the_commands_say() -> None:
    text = reference.DOC.read_text("utf-8")
    assert reference.renewed(text) == text, "docs/cli.md is stale: python -m tests.cli.reference"
    assert all(f" {' '.join(path)}\n" in text for path, _ in commands())
    assert text.count("| 5 | this run of a writer is over") == 1


def test_the_list_of_commands_fits_a_terminal() -> None:
    for path, command in commands():
        context = click.Context(command, info_name=" ".join(path), terminal_width=80)
        listed = command.get_help(context).partition("Commands:\n")[2].splitlines()
        assert not [line for line in listed if line.endswith("...")], path


def test_no_help_of_any_command_loads_anything_heavy() -> None:
    code = """
import sys, time
from contextlib import redirect_stdout
from io import StringIO
from tests.cli.commands import commands
for path, command in commands():
    with redirect_stdout(StringIO()):
        command.main(["--help"], prog_name=path[0], standalone_mode=False)
heavy = {"pyiceberg", "pyarrow", "fastavro", "pydantic", "pyspark", "apscheduler", "sqlalchemy", "rich", "requests"}
heavy |= {"prometheus_client", "fsspec", "numpy", "urllib.request", "boto3", "azure"}
print(*sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
