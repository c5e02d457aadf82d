"""
Each job says at once what it does, and shows how.
"""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from spark_jobs import apply_changes, compact, maintain, prepare, read_stream, write_stream

JOBS = [prepare.main, read_stream.main, write_stream.main, apply_changes.main, compact.main, maintain.main]
COMMANDS = [*JOBS, *maintain.main.commands.values()]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_help_has_an_example_and_a_line_for_each_option(command):
    said = CliRunner().invoke(command, ["--help"]).output

    assert "Example: " in said
    assert all(getattr(option, "help", "said") for option in command.params)


@pytest.mark.parametrize("job", ["prepare", "read_stream", "write_stream", "apply_changes", "compact", "maintain"])
def test_help_loads_neither_spark_nor_iceberg(job):
    code = f"import sys, spark_jobs.{job}; print(*{{'pyspark', 'pyiceberg', 'pyarrow', 'py4j'}} & set(sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (loaded.stdout.strip(), loaded.returncode) == ("", 0), loaded.stderr
