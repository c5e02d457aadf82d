"""
What was seen of every row, on disk: published, committed, consumed; written as it happens, read for the account.

One JSON line per txlog and per snapshot, one file per micro-batch, each with the keys of its rows.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bookkeeper.contract.names import TxlogName


@dataclass(frozen=True, slots=True)
class Published:
    """
    One txlog that was seen in pending/, or that a writer's close log (`logged`) says it published; maybe both, twice.

    Its data files were closed, and the txlog itself was there, at these times.
    """

    txlog: str
    keys: list[str]
    closed_ms: int
    published_ms: int
    logged: bool = False

    @property
    def name(self) -> TxlogName:
        """Its parsed name."""
        return TxlogName.parse(self.txlog)


@dataclass(frozen=True, slots=True)
class Committed:
    """One append snapshot: the txlogs its summary names, and the keys in the files it added, by path."""

    snapshot: int
    at_ms: int
    txlogs: list[str]
    files: Mapping[str, list[str]]

    @property
    def names(self) -> list[TxlogName]:
        """Their parsed names."""
        return [TxlogName.parse(text) for text in self.txlogs]


@dataclass(frozen=True, slots=True)
class Consumed:
    """One micro-batch of the Spark stream."""

    batch: int
    seen_ms: int
    keys: list[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it."""

    published: list[Published]
    committed: list[Committed]
    consumed: list[Consumed]


def consumed_folder(folder: Path) -> Path:
    """
    Where the consumer keeps its micro-batches.
    """
    return folder / "consumed"


def write(folder: Path, seen: Published | Committed) -> None:
    """
    Append one txlog or snapshot.
    """
    with _path(folder, type(seen)).open("a") as lines:
        lines.write(json.dumps(asdict(seen)) + "\n")


def load(folder: Path) -> Evidence:
    """
    The evidence of a whole run.
    """
    return Evidence(
        [Published(**line) for line in _lines(_path(folder, Published))],
        [Committed(**line) for line in _lines(_path(folder, Committed))],
        list(batches(folder).values()),
    )


def batches(folder: Path, known: Collection[str] = ()) -> dict[str, Consumed]:
    """
    The micro-batches of the consumer, by file name, without those `known`.
    """
    paths = sorted(path for path in consumed_folder(folder).glob("*.json") if path.name not in known)
    return {path.name: Consumed(**json.loads(path.read_text())) for path in paths}


def _path(folder: Path, kind: type[Published | Committed]) -> Path:
    return folder / f"{kind.__name__.lower()}.jsonl"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
