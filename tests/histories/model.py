"""
The plain model: which files are live, and nothing about snapshots, manifests or how a commit is made.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.histories.files import File, Row


@dataclass
class Model:
    """Live files by path, and published ones by txlog until they are in."""

    live: dict[str, File] = field(default_factory=dict)
    pending: dict[str, list[File]] = field(default_factory=dict)
    #: bytes of live delete files
    delete_bytes: int = 0
    #: rows that ever came in
    ever: list[Row] = field(default_factory=list)

    def commit(self) -> None:
        """All that is pending is in."""
        for files in self.pending.values():
            self.add(*files)
        self.pending.clear()

    def add(self, *files: File) -> None:
        """Files that are in now."""
        for file in files:
            assert file.path not in self.live
            self.live[file.path] = file
            self.ever += file.rows

    def drop(self, path: str) -> None:
        """A file that another program deleted."""
        del self.live[path]

    def expire(self, column: int, keep: timedelta, now: datetime) -> None:
        """Files whose newest row is older than `keep` go; one with a null goes never."""
        for file in list(self.live.values()):
            newest = file.newest(column)
            if newest is not None and newest < now - keep:
                self.drop(file.path)

    @property
    def totals(self) -> dict[str, int]:
        """What the summary of the head must say."""
        files = self.live.values()
        return {
            "total-data-files": len(files),
            "total-records": sum(file.described.record_count for file in files),
            "total-files-size": sum(file.described.size_bytes for file in files) + self.delete_bytes,
        }


def comparable(item: Any) -> Any:
    """A value that equals itself: NaN does not."""
    return "NaN" if isinstance(item, float) and item != item else item


def seen(values: Iterable[Any]) -> tuple[Any, ...]:
    """A partition tuple that equals itself."""
    return tuple(map(comparable, values))
