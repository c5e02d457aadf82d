"""
What an observer sees of folds: how they ended, and what waits to be folded.

After each commit the latter is known without reading a manifest: a look lists the live equality delete files of one
head, and the summaries of the snapshots since say how many came and went.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile

from pyiceberg.manifest import ManifestContent

from bookkeeper.config.settings import Table
from bookkeeper.contract.rewrite import file_key
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.history.main_history import counted
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.manifests.reader import with_live_files

#: how a fold ended: committed, dropped because the table had outrun it, failed, or it left deletes as they are
COMMITTED, OUTDATED, FAILED, REFUSED = "committed", "outdated", "failed", "refused"
#: folds are behind when an equality delete file is so old
BEHIND = timedelta(minutes=15)
#: snapshots since a look that are counted; there is a look every few seconds
_MOST_SNAPSHOTS = 1000


@dataclass(frozen=True, slots=True)
class FoldOutcome:
    """
    How a fold ended.

    Of one that was committed: the equality delete files it took out, the data files without a row left that it took
    out, the rows it marked as deleted or took out, and the seconds from its start to its commit. Of one that left
    deletes: why.
    """

    outcome: str
    delete_files: int = 0
    data_files: int = 0
    rows: int = 0
    seconds: float = 0.0
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """
    The live equality delete files of a head, oldest first: when each was added, in ms since 1970, and its key. `number`
    is the head's sequence number.
    """

    snapshot: int
    number: int
    files: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Unfolded:
    """How many equality delete files are live, and when the oldest was added, in ms since 1970: then, or earlier."""

    files: int = 0
    since_ms: int | None = None

    def age(self, now: datetime) -> timedelta:
        """How long the oldest file has waited; 0 where none waits."""
        waited = 0 if self.since_ms is None else now.timestamp() * 1000 - self.since_ms
        return timedelta(milliseconds=max(waited, 0))


def look_of(view: View, files: Iterable[tuple[str, int]]) -> Look:
    """
    A look at the head: its live equality delete files, by `file_key`, and the snapshot that added each.
    """
    times = {item.snapshot_id: item.timestamp_ms for item in view.metadata.snapshots}
    # One whose snapshot has expired is older than what is kept.
    oldest = min(times.values(), default=0)
    assert view.head is not None
    aged = sorted((times.get(snapshot, oldest), key) for key, snapshot in files)
    return Look(view.head.snapshot_id, view.head.sequence_number or 0, aged)


@dataclass(frozen=True, slots=True)
class EqualityDeletes:
    """The live equality delete files of one table as of a look at it; a further look is another value."""

    look: Look | None = None
    #: of each delete manifest of that head: each live one, by `file_key`, and the snapshot that added it
    manifests: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)

    @property
    def files(self) -> list[tuple[str, int]]:
        """Each live one, by `file_key`, and the snapshot that added it."""
        return [item for files in self.manifests.values() for item in files]

    def seen(self, ledger: Ledger, view: View) -> "EqualityDeletes":
        """
        A look at this head. Raises Retry, ManifestCorrupt.

        A manifest never changes, and is read once.
        """
        listed = with_live_files(ledger.manifests(view), ManifestContent.DELETES)
        new, known = [item for item in listed if item.manifest_path not in self.manifests], {**self.manifests}
        # Most have none: what folds write are position deletes.
        for manifest, entries in ledger.reader(view).entries(new, ManifestContent.DELETES):
            known[manifest.manifest_path] = [
                (file_key(entry.data_file.path), entry.snapshot_id or 0)
                for entry in entries
                if entry.content == EQUALITY_DELETES
            ]
        found = EqualityDeletes(None, {item.manifest_path: known[item.manifest_path] for item in listed})
        return replace(found, look=look_of(view, found.files))

    def refreshed(self, ledger: Ledger, view: View, seen: Look | None = None) -> "EqualityDeletes":
        """
        A look, unless this one, or what was `seen`, is of this head; for an observer where nothing is folded.
        """
        looked = {look.snapshot for look in (self.look, seen) if look is not None}
        needed = view.total("total-delete-files") and view.metadata.current_snapshot_id not in looked
        return self.seen(ledger, view) if needed else self

    def unfolded(self, view: View) -> Unfolded | None:
        """What is unfolded in this view, None when it is unknown; reads nothing."""
        return unfolded(view, self.look, frozenset())


def newest(*looks: Look | None) -> Look | None:
    """
    The look at the newest head.
    """
    return max(filter(None, looks), key=lambda look: look.number, default=None)


def unfolded(view: View, look: Look | None, folded: Set[str]) -> Unfolded | None:
    """
    What is unfolded in this view; `folded` are files that a fold took out since the look. None when it is unknown.
    """
    if not view.total("total-delete-files"):
        return Unfolded()
    if look is None:
        return None
    files, came = len(look.files), None
    newer = takewhile(lambda item: item.snapshot_id != look.snapshot, reversed(view.metadata.snapshots))
    for snapshot in islice(newer, _MOST_SNAPSHOTS):
        added = counted(snapshot, "added-equality-delete-files")
        files += added - counted(snapshot, "removed-equality-delete-files")
        came = snapshot.timestamp_ms if added else came
    since = next((at for at, key in look.files if key not in folded), came)
    return Unfolded(files, since) if files > 0 else Unfolded()


def committed(after: View, delete_files: int, took: timedelta) -> FoldOutcome:
    """
    The outcome of a fold whose snapshot is the head of `after`.
    """
    positions = after.total("added-position-deletes") - after.total("removed-position-deletes")
    return FoldOutcome(
        COMMITTED,
        delete_files,
        after.total("deleted-data-files"),
        max(after.total("deleted-records") + positions, 0),
        max(took, timedelta(0)).total_seconds(),
    )


def behind_after(settings: Table) -> timedelta:
    """
    How old an equality delete file of this table is when folds are behind.
    """
    return settings.fold.after + BEHIND
