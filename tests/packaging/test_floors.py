"""
The contracts of setup.cfg hold, and each goes red for the import that it forbids.
"""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, packages, run

FLOORS = "A package imports only from the floors below its own"
GUESTS = "writers, reaper and spark_jobs import nothing of the bookkeeper's tick"
MANIFESTS = "Manifest entries are decoded in format and manifests only"
CYCLES = "No two modules import each other"
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
    ("bookkeeper/errors.py", "import bookkeeper.contract.marks", CYCLES),
    ("bookkeeper/console/__init__.py", "import bookkeeper.ledger", FLOORS),
    ("bookkeeper/observe/http/__init__.py", "import bookkeeper.ledger", "The page shows what metrics hold"),
    ("bookkeeper/cli/__init__.py", "import bookkeeper.discover", "Only the tick and what starts it import discover"),
    ("bookkeeper/sundries.py", "", FLOORS),
    ("writers/writer.py", "import writers.kafka.partitions", "A writer imports nothing of the guests"),
    ("writers/txlog_folders.py", "import writers.http.tokens", "Only the command line imports the guest http"),
    ("writers/txlog_folders.py", "import writers.kafka.partitions", "Only the command line imports the guest kafka"),
]


def test_every_file_keeps_to_its_floor(tmp_path: Path):
    assert checked(tmp_path) == {}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """
    What is said of the code with every forbidden import in it, by contract.
    """
    return checked(tmp_path_factory.mktemp("floors"), FORBIDDEN)


@pytest.mark.parametrize("file, line, contract", FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(found: Mapping[str, str], file: str, line: str, contract: str):
    (name,) = (name for name in found if contract in name)
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    imported = line.removeprefix("import ")
    if contract == CYCLES:
        module, imported = (f".{name.split('.')[1]}" for name in (module, imported))

    assert f" {module} -> {imported} (" in found[name] if line else f"- {module}\n" in found[name]


def checked(place: Path, more: Sequence[tuple[str, str, str]] = ()) -> dict[str, str]:
    """
    The contracts that a copy of the code in `place` with these lines breaks, and what is said of each.
    """
    for package in packages():
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", place)
    for file, line, _ in more:
        with (place / file).open("a") as code:
            code.write(f"\n{line}\n")
    ended = run(str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache", cwd=place)
    assert "Contracts:" in ended.stdout, ended.stdout + ended.stderr
    _, *parts = re.split(r"^(.+)\n-+\n$", ended.stdout.partition("Broken contracts\n")[2], flags=re.MULTILINE)
    broken = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(broken) == ended.stdout.count(" BROKEN")
    return broken
