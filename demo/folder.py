"""
The demo's folder: fresh for each run, held by a lock while it runs.

Removes only what a former demo made, and never while that one runs.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.errors import NotPossible

MARKER = "made-by-the-demo"
_MARKER_TEXT = "The demo made this folder; its next run removes it with all that is in it.\n"


@dataclass(frozen=True, slots=True)
class DemoPaths:
    """Where each thing of a demo lies."""

    root: Path

    @property
    def config(self) -> Path:
        """The configuration all processes share."""
        return self.root / "bookkeeper.toml"

    @property
    def logs(self) -> Path:
        """The log of each process."""
        return self.root / "log"

    @property
    def evidence(self) -> Path:
        """Which keys were published, committed and consumed, and when."""
        return self.root / "evidence"

    @property
    def checkpoint(self) -> Path:
        """Where the Spark stream keeps its offsets."""
        return self.root / "checkpoint"

    def log(self, name: str) -> Path:
        """The log of one process."""
        return self.logs / f"{name}.log"


@contextmanager
def fresh(folder: Path) -> Iterator[DemoPaths]:
    """
    An empty folder of our own, locked until the block ends; raises NotPossible.
    """
    folder = folder.absolute()
    _refuse_strange(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / MARKER).open("a") as marker:
        _lock(folder, marker.fileno())
        marker.truncate(0)
        marker.write(_MARKER_TEXT)
        marker.flush()
        _empty(folder)
        paths = DemoPaths(folder)
        for path in (paths.logs, paths.evidence):
            path.mkdir()
        yield paths


def _refuse_strange(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise NotPossible(f"{folder} is not a folder", hint="Move it away, or set DEMO_FOLDER.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise NotPossible(f"{folder} was not made by a demo", hint="Move it away, or set DEMO_FOLDER.")


def _lock(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise NotPossible(f"a demo is running in {folder}", hint="Wait for it, or set DEMO_FOLDER.") from exc


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
