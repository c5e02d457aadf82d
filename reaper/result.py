"""
What a run of the reaper did, and what the next one would do.
"""

from dataclasses import dataclass, fields

from reaper.expiry.expiry_plan import Plan
from reaper.files.expired import Files
from reaper.orphans import Orphan


@dataclass(frozen=True, slots=True)
class Reaped:
    """
    What a run did: snapshots expired, files, orphans and bytes deleted (statistics count as metadata), and data files
    kept because snapshots read them by another entry.
    """

    snapshots: int = 0
    data_files: int = 0
    manifests: int = 0
    metadata_files: int = 0
    bytes: int = 0
    orphans: int = 0
    kept: int = 0

    @classmethod
    def of(cls, snapshots: int, files: Files, kept: int = 0) -> "Reaped":
        """So many snapshots expired, these files deleted, so many data files kept."""
        manifests = len(files.manifests) + len(files.manifest_lists)
        metadata = len(files.metadata) + len(files.statistics)
        return cls(snapshots, len(files.data), manifests, metadata, sum(files.sizes().values()), kept=kept)

    def __add__(self, other: "Reaped") -> "Reaped":
        return Reaped(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    def __bool__(self) -> bool:
        return any(getattr(self, item.name) for item in fields(self))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the next run would do: snapshots and files to go, files outside the table, and why the rest stays."""

    plan: Plan
    files: Files
    refused: tuple[str, ...] = ()
    orphans: tuple[Orphan, ...] = ()
