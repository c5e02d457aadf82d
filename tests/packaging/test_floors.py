"""
The contracts of setup.cfg hold, and each goes red for the import that it forbids.
"""

import shutil
import sys
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, packages, run

FLOORS = "A package imports only from the floors below its own"
GUESTS = "writers, reaper and spark_jobs import nothing of the bookkeeper's tick"
MANIFESTS = "Manifest entries are decoded in format and manifests only"
KERNEL = "The contract between programs imports no CLI, scheduler or Spark"

FORBIDDEN = [
    ("writers/__init__.py", "import bookkeeper.tick.tick", GUESTS),
    ("writers/__init__.py", "import bookkeeper.ledger", GUESTS),
    ("writers/__init__.py", "import bookkeeper.catalogs.open", "A writer opens no catalog"),
    (
        "writers/__init__.py",
        "import bookkeeper.manifests.reader",
        "A writer opens no catalog, but for keys, and reads no manifest",
    ),
    ("writers/reach.py", "import bookkeeper.catalogs.open", "A writer opens no catalog"),
    ("reaper/__init__.py", "import bookkeeper.cli", GUESTS),
    ("reaper/__init__.py", "import bookkeeper.retention", GUESTS),
    ("reaper/__init__.py", "import writers", "The reaper imports no writers"),
    ("reaper/__init__.py", "import spark_jobs", "Of writers, reaper and spark_jobs only spark_jobs imports writers"),
    ("spark_jobs/__init__.py", "import reaper", "Of writers, reaper and spark_jobs only spark_jobs imports writers"),
    ("writers/__init__.py", "import spark_jobs", "Of writers, reaper and spark_jobs only spark_jobs imports writers"),
    ("writers/__init__.py", "import reaper", "Of writers, reaper and spark_jobs only spark_jobs imports writers"),
    ("bookkeeper/console/__init__.py", "import writers", "Nothing in bookkeeper imports writers"),
    ("bookkeeper/contract/names.py", "import click", KERNEL),
    ("bookkeeper/stores/__init__.py", "import click", KERNEL),
    ("bookkeeper/format/__init__.py", "import pyspark", KERNEL),
    ("bookkeeper/contract/names.py", "import bookkeeper.ledger", FLOORS),
    ("bookkeeper/contract/names.py", "import bookkeeper.manifests", FLOORS),
    ("bookkeeper/manifests/__init__.py", "import bookkeeper.ledger", FLOORS),
    ("bookkeeper/ledger/__init__.py", "import bookkeeper.format.decoder", MANIFESTS),
    ("bookkeeper/consumers/__init__.py", "import bookkeeper.manifests.foreign", MANIFESTS),
    ("reaper/__init__.py", "import bookkeeper.format.decoder", MANIFESTS),
    ("bookkeeper/stores/__init__.py", "import bookkeeper.contract.names", FLOORS),
    ("bookkeeper/format/__init__.py", "import bookkeeper.contract.names", FLOORS),
    ("bookkeeper/errors.py", "import bookkeeper.format", FLOORS),
    ("bookkeeper/errors.py", "import bookkeeper.contract.marks", "No two modules import each other"),
    ("bookkeeper/console/__init__.py", "import bookkeeper.ledger", FLOORS),
    ("bookkeeper/observe/http/__init__.py", "import bookkeeper.ledger", "The page shows what metrics hold"),
    ("bookkeeper/cli/__init__.py", "import bookkeeper.discover", "Only the tick and what starts it import discover"),
    ("bookkeeper/sundries.py", "", FLOORS),
    ("writers/writer.py", "import writers.kafka.partitions", "A writer imports nothing of the guests"),
    ("writers/txlog_folders.py", "import writers.http.tokens", "Only the command line imports the guest http"),
    ("writers/txlog_folders.py", "import writers.kafka.partitions", "Only the command line imports the guest kafka"),
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
