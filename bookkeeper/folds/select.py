"""
What a fold would do: the equality delete files of a head that can be folded, and the data files they may apply to.

Reads manifests, and no data. It is done beside the ticks: nothing here touches what they remember.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from bookkeeper.contract.delete_scope import DeleteFile, Scope, scopes_of
from bookkeeper.contract.rewrite import file_key
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES, DataFile, Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import live_files
from bookkeeper.ledger.view import View
from bookkeeper.manifests.header import Header, ManifestWriter
from bookkeeper.manifests.walk import ReadBlock, live_rows

_FLOATS = {"float", "double"}
#: no manifest of such a spec can be written
DROPPED = "a column of the partition spec was dropped"


class LiveDelete(NamedTuple):
    """A live delete file, its entry and the spec of that."""

    file: DeleteFile
    entry: Entry
    spec_id: int


class Group(NamedTuple):
    """Equality deletes of one scope and one key: they are folded together, or stay together."""

    scope: Scope
    key_ids: tuple[int, ...]


class Candidate(NamedTuple):
    """A live data file that equality deletes apply to, by its numbers and its partition."""

    key: str
    manifest: str
    spec_id: int
    sequence_number: int
    file: DataFile
    groups: tuple[Group, ...]


@dataclass
class Selection:
    """What may be folded, and why the rest may not."""

    view: View
    groups: dict[Group, list[LiveDelete]] = field(default_factory=dict)
    #: live position delete files for one data file alone, by its key
    predecessors: dict[str, list[LiveDelete]] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    #: data manifests that were read
    manifests: frozenset[str] = frozenset()
    #: equality delete files that stay, by `file_key`, and why
    left: dict[str, str] = field(default_factory=dict)

    @property
    def deletes(self) -> list[LiveDelete]:
        """The equality delete files that may be folded."""
        return [item for group in self.groups.values() for item in group]

    def leave(self, groups: Collection[Group], why: str) -> None:
        """Takes these groups out of the selection: their files stay as they are."""
        for group in groups:
            self.left |= {item.file.key: why for item in self.groups.pop(group, ())}


def live_deletes(ledger: Ledger, view: View) -> Iterator[tuple[ListedManifest, Header | None, LiveDelete]]:
    """
    Every live delete file with the manifest that lists it; raises Retry, ManifestCorrupt.
    """
    for item in live_files(ledger, view, ManifestContent.DELETES, ManifestWriter()):
        found = LiveDelete(item.delete_file(view), item.entry, item.manifest.partition_spec_id)
        yield item.manifest, item.header, found


def select(ledger: Ledger, view: View) -> Selection:
    """
    What may be folded of this head; raises Retry, ManifestCorrupt.
    """
    found = Selection(view)
    for _, header, item in live_deletes(ledger, view):
        if item.entry.content == EQUALITY_DELETES:
            _add_equality_delete(found, header, item)
        # One whose manifest cannot be written anew stays, and another one beside it hides no row more.
        elif item.entry.content == POSITION_DELETES and isinstance(item.file.scope, str) and header is not None:
            found.predecessors.setdefault(item.file.scope, []).append(item)
    if found.groups:
        _add_candidates(ledger, found)
    return found


def _add_equality_delete(found: Selection, header: Header | None, item: LiveDelete) -> None:
    why = _why_not(found.view.metadata.schema(), header, item)
    if why:
        found.left[item.file.key] = why
        return
    group = Group(item.file.scope, tuple(sorted(item.entry.equality_ids or ())))
    found.groups.setdefault(group, []).append(item)


def _why_not(schema: Schema, header: Header | None, item: LiveDelete) -> str:
    """Why an equality delete file cannot be folded here; "" if it can."""
    scope = item.file.scope
    if header is None:
        return DROPPED
    # 0.0 and -0.0 are two partitions of Iceberg's, and NaN is one: Python's floats cannot tell.
    if scope is not None and any(isinstance(value, float) for value in item.entry.data_file.partition):
        return "its partition has a float"
    kinds = {column.field_id: column.field_type for column in schema.fields}
    ids = item.entry.equality_ids or ()
    if not ids or any(not isinstance(kinds.get(number), PrimitiveType) for number in ids):
        return "its key is no plain column of the table"
    return "its key has a float" if any(str(kinds[number]) in _FLOATS for number in ids) else ""


def _add_candidates(ledger: Ledger, found: Selection) -> None:
    """Reads every data manifest: also newer files matter, if one of them is a candidate a second time."""
    view, writer, read, paths = found.view, ManifestWriter(), set[str](), list[str]()
    newest = {group: max(item.file.largest_number for item in items) for group, items in found.groups.items()}
    for manifest, blocks in ledger.reader(view).blocks(ledger.manifests(view), ManifestContent.DATA):
        read.add(manifest.manifest_path)
        groups_of = _GroupsOf(view.header_of(manifest, writer), manifest.partition_spec_id, newest)
        for block in blocks:
            paths += _read_block(block, manifest, groups_of, found)
    found.manifests = frozenset(read)
    double, unwritable = _double(paths), {number for number in view.specs if view.schema_for(number) is None}
    for item in found.candidates:
        if item.key in double:
            found.leave(item.groups, "a data file is named twice")
        if item.spec_id in unwritable:
            found.leave(item.groups, DROPPED)


def _read_block(block: ReadBlock, manifest: ListedManifest, groups_of: "_GroupsOf", found: Selection) -> Iterator[str]:
    """The locations of its live files; those that a group applies to are added to the candidates."""
    for _, row, sequence in live_rows(block.rows, manifest):
        yield row.path
        groups = groups_of(row.partition, sequence)
        if groups:
            where, file = (manifest.manifest_path, manifest.partition_spec_id), block.entry(row).data_file
            found.candidates.append(Candidate(file_key(row.path), *where, sequence, file, groups))


class _GroupsOf:
    """Which groups apply to data files of one spec."""

    def __init__(self, header: Header | None, spec_id: int, newest: dict[Group, int]) -> None:
        self._header, self._spec_id, self._newest = header, spec_id, newest
        self._known: dict[tuple[Any, ...], list[tuple[Group, int]]] = {}

    def __call__(self, partition: tuple[Any, ...], sequence: int) -> tuple[Group, ...]:
        """The groups with a delete that is newer than `sequence`."""
        if partition not in self._known:
            keys = self._header.partition_keys([partition]) if self._header else set()
            # Without a header: then no group is bound to this spec.
            scopes = scopes_of("", self._spec_id, next(iter(keys), None))[1:]
            self._known[partition] = [(group, most) for group, most in self._newest.items() if group.scope in scopes]
        return tuple(group for group, most in self._known[partition] if most >= sequence)


def _double(paths: Iterable[str]) -> set[str]:
    """Files that are live more than once, in whichever spelling, by `file_key`."""
    listed = list(paths)
    names = Counter(path.rpartition("/")[2] for path in listed)
    if len(names) == len(listed):
        return set()  # as in a queue: no location is normalized
    times = Counter(file_key(path) for path in listed if names[path.rpartition("/")[2]] > 1)
    return {key for key, count in times.items() if count > 1}


def since(view: View, deletes: Sequence[LiveDelete]) -> datetime | None:
    """
    When the oldest of these was committed, by the snapshots that are kept; None where its snapshot is not kept.
    """
    times = {item.snapshot_id: item.timestamp_ms for item in view.metadata.snapshots}
    found = [times.get(item.entry.snapshot_id or 0) for item in deletes]
    if None in found or not found:
        return None
    return datetime.fromtimestamp(min(time for time in found if time is not None) / 1000, UTC)
