"""
The contracts of setup.cfg hold, and each goes red for the import that it forbids.
"""

import shutil
import sys
from pathlib import Path

import pytest

from .project import ROOT, packages, run

FORBIDDEN = [
    ("writers/__init__.py", "import bookkeeper.daemon", "writers, reaper and spark_jobs import only"),
    ("writers/__init__.py", "import bookkeeper.ledger", "writers, reaper and spark_jobs import only"),
    ("reaper/__init__.py", "import bookkeeper.cli", "writers, reaper and spark_jobs import only"),
    ("reaper/__init__.py", "import writers", "writers, reaper and spark_jobs never import each other"),
    ("bookkeeper/console/__init__.py", "import writers", "Nothing in bookkeeper imports writers"),
    ("bookkeeper/core/names.py", "import click", "The kernel imports no CLI, scheduler or Spark"),
    ("bookkeeper/format/__init__.py", "import pyspark", "The kernel imports no CLI, scheduler or Spark"),
    ("bookkeeper/core/names.py", "import bookkeeper.ledger", "A file imports only from the floors below"),
    ("bookkeeper/format/__init__.py", "import bookkeeper.core.names", "A file imports only from the floors below"),
    ("bookkeeper/core/errors.py", "import bookkeeper.format", "core.errors is the ground floor"),
    ("bookkeeper/core/errors.py", "import bookkeeper.core.marks", "No two modules import each other"),
    ("bookkeeper/console/__init__.py", "import bookkeeper.ledger", "A file imports only from the floors below"),
    (
        "bookkeeper/http/__init__.py",
        "import bookkeeper.ledger",
        "Only the daemon, its parts and the CLI import the ledger",
    ),
    ("bookkeeper/cli/__init__.py", "import bookkeeper.discover", "Only the daemon imports discover"),
    ("bookkeeper/sundries.py", "", "A file imports only from the floors below"),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """
    The code and its contracts, to be broken.
    """
    for package in packages():
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def test_every_file_keeps_to_its_floor(copy: Path):
    assert broken(copy) == ""


@pytest.mark.parametrize("file, line, contract", FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(copy: Path, file: str, line: str, contract: str):
    with (copy / file).open("a") as code:
        code.write(f"\n{line}\n")

    assert contract in broken(copy)


def broken(copy: Path) -> str:
    """
    The names of the contracts that do not hold, a line each.
    """
    checked = run(str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache", cwd=copy)
    assert "Contracts:" in checked.stdout, checked.stdout + checked.stderr
    return "\n".join(line for line in checked.stdout.splitlines() if " BROKEN" in line)
