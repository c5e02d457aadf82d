"""
What must hold of each new snapshot by the Iceberg spec: its manifest list says what its manifests hold, their entries
say what the files hold, sequence numbers are right and stay, and its summary counts what has changed.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.simulation.decoder import (
    ADDED,
    DATA,
    DELETED,
    EQUALITY_DELETES,
    EXISTING,
    KINDS,
    Contents,
    Decoder,
    Line,
    Listed,
    Wrong,
)
from tests.simulation.table_state import Snapshot, TableState

_START, _US = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
TIME, KEY = 1, 2
#: the counters of a summary that say what it holds (Iceberg spec, "Optional Snapshot Summary Fields")
COUNTERS = (
    *(f"total-{key}" for key in ("data-files", "records", "files-size", "delete-files")),
    *(f"total-{kind}-deletes" for kind in KINDS.values()),
    *(f"{what}-files-size" for what in ("added", "removed")),
    *(f"{what}-{key}" for what in ("added", "deleted") for key in ("data-files", "records")),
    *(f"{what}-delete-files" for what in ("added", "removed")),
    *(f"{what}-{kind}-deletes" for what in ("added", "removed") for kind in KINDS.values()),
    *(f"{what}-{kind}-delete-files" for what in ("added", "removed") for kind in KINDS.values()),
)
#: pyiceberg's summaries count no partition of a table without partitions
PARTITIONS = "changed-partition-count"
#: of a merge of manifests
MERGES = ("manifests-created", "manifests-replaced", "manifests-kept", "entries-processed")
#: what else ours say
OWN = frozenset(f"bookkeeper.{key}" for key in ("txlogs", "txlog-count", "append", "numbers", "rewrites", "reason"))


@dataclass
class SnapshotRules:
    """Looks at each snapshot once; remembers the numbers and facts of each file."""

    decoder: Decoder
    #: numbers of each file by the snapshots that added it: a rollback may bring a file in once more
    numbers: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    #: what entries said of each file when it came in
    facts: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    #: the column that a row has beside those that all have, and its value there
    extra_of: Callable[[str], tuple[str, str] | None] = lambda row: None
    #: what a manifest adds to each total; a manifest never changes
    _totals: dict[str, Counter[str]] = field(default_factory=dict)
    _lines: dict[str, Listed] = field(default_factory=dict)
    #: data sequence numbers that rewrites of compactors must give to their new files
    rewritten: dict[str, int] = field(default_factory=dict)

    def check(self, table: TableState, snapshot: Snapshot, parent: Snapshot | None) -> None:
        """All rules for a new snapshot."""
        for manifest in self.decoder.manifests(snapshot):
            self._manifest(table, snapshot, manifest)
        self._summary(snapshot, parent)

    # -- manifests

    def _manifest(self, table: TableState, snapshot: Snapshot, manifest: Listed) -> None:
        known = self._lines.setdefault(manifest.path, manifest)
        if known != manifest:
            raise Wrong(f"{snapshot.about} lists {manifest.path} otherwise than before: {manifest}, not {known}")
        if self.decoder.is_known(manifest.path):
            return
        about, lines = f"{snapshot.about}: {manifest.path.rpartition('/')[2]}", self.decoder.lines(manifest.path)
        if manifest.snapshot != snapshot.id or manifest.number != snapshot.number:
            raise Wrong(f"{about} is new, and is listed as of snapshot {manifest.snapshot}, {manifest.number}")
        if manifest.length != len(self.decoder.stored(manifest.path)):
            raise Wrong(f"{about} has not the {manifest.length} bytes that the list says")
        files, rows = Counter(line.status for line in lines), Counter[int]()
        for line in lines:
            rows[line.status] += line.rows
            self._line(table, snapshot, manifest, line, about)
        for status in (EXISTING, ADDED, DELETED):
            if (manifest.files[status], manifest.rows[status]) != (files[status], rows[status]):
                raise Wrong(f"{about} holds other counts than the list says, {manifest.files} and {manifest.rows}")
        live = [line for line in lines if line.status != DELETED]
        least = min((manifest.number if line.number is None else line.number for line in live), default=None)
        if least is not None and manifest.least != least:
            raise Wrong(f"{about}: the list says that numbers begin at {manifest.least}, they begin at {least}")
        self._partitions(manifest, live, about, snapshot.ours)

    def _partitions(self, manifest: Listed, live: Iterable[Line], about: str, ours: bool) -> None:
        """Readers prune by the bounds in the list; every value here is an int."""
        tuples = [line.partition for line in live]
        if manifest.partitions is None:
            if ours and any(tuples):
                raise Wrong(f"{about} has no summary of its partitions")
            return
        for at, (has_null, low, high) in enumerate(manifest.partitions):
            values = [values[at] for values in tuples]
            known = [value for value in values if value is not None]
            if None in values and not has_null:
                raise Wrong(f"{about} has a null, and the list says that it has none")
            if known and not (low and high and _int(low) <= min(known) and max(known) <= _int(high)):
                raise Wrong(f"{about}: partitions {min(known)} to {max(known)} are not within the list's bounds")

    def _line(self, table: TableState, snapshot: Snapshot, manifest: Listed, line: Line, about: str) -> None:
        about = f"{about}: {line.path.rpartition('/')[2]}"
        if (line.content == DATA) != (manifest.content == 0):
            raise Wrong(f"{about} lies in a manifest of other content")
        if line.status == ADDED:
            self._added(table, snapshot, manifest, line, about)
        else:
            self._carried(snapshot, line, about)
        known = self.facts.setdefault(line.path, (line.content, line.rows, line.bytes, line.partition, *line.facts))
        if known != (line.content, line.rows, line.bytes, line.partition, *line.facts):
            raise Wrong(f"{about}: the entry says otherwise than when the file came in")

    def _added(self, table: TableState, snapshot: Snapshot, manifest: Listed, line: Line, about: str) -> None:
        number = manifest.number if line.number is None else line.number
        file_number = manifest.number if line.file_number is None else line.file_number
        if line.snapshot not in (None, snapshot.id) or file_number != snapshot.number:
            raise Wrong(f"{about} is added by snapshot {line.snapshot} with the file number {file_number}")
        if not 0 < number <= snapshot.number:
            raise Wrong(f"{about} has the number {number}")
        if self.rewritten.get(line.path, number) != number:
            raise Wrong(f"{about} has the number {number}, and replaces files up to {self.rewritten[line.path]}")
        self.numbers.setdefault(line.path, {})[snapshot.id] = number, file_number
        size = len(self.decoder.stored(line.path))
        if line.bytes != size:
            raise Wrong(f"{about} has {size} bytes, and its entry says {line.bytes}")
        if line.content == DATA:
            self._data_file(table, manifest, line, about)
        else:
            self._delete_file(table, line, about)

    def _carried(self, snapshot: Snapshot, line: Line, about: str) -> None:
        """An entry that is not new keeps its numbers, written out."""
        known = self.numbers.get(line.path, {})
        numbers = line.number, line.file_number
        by = line.snapshot if line.status == EXISTING else None
        right = [pair for snapshot_id, pair in known.items() if by in (None, snapshot_id)]
        if numbers not in right:
            raise Wrong(f"{about} is carried with the numbers {numbers}, it had {right}")
        if line.status == DELETED and line.snapshot != snapshot.id:
            raise Wrong(f"{about} is deleted by snapshot {line.snapshot}")

    # -- files

    def _data_file(self, table: TableState, manifest: Listed, line: Line, about: str) -> None:
        rows = self.decoder.contents(line.path)
        if line.rows != len(rows.pairs):
            raise Wrong(f"{about} has {len(rows.pairs)} rows, and its entry says {line.rows}")
        times = {*rows.times} if rows.times else set[datetime]()
        for at, partition_field in enumerate(table.spec_of(manifest.spec)["fields"]):
            values = {_transformed(partition_field, moment) for moment in times} | (
                {None} if rows.null_times else set()
            )
            if values != {line.partition[at]}:
                raise Wrong(f"{about} has rows of partitions {values}, and lies in {line.partition}")
        for row, found in rows.extra.items():
            if found != self.extra_of(row):
                raise Wrong(f"{about} has {found} in {row}, it was written with {self.extra_of(row)}")
        self._bounds(line, rows, about)
        counts, nulls = line.counts("value_counts"), line.counts("null_value_counts")
        if counts and any(counts[column] != line.rows for column in (TIME, KEY)):
            raise Wrong(f"{about} has {line.rows} values of each column, its entry says {counts}")
        if nulls and (nulls[TIME], nulls[KEY]) != (rows.null_times, 0):
            raise Wrong(f"{about} has {rows.null_times} null times and no null key, its entry says {nulls}")

    def _bounds(self, line: Line, rows: Contents, about: str) -> None:
        """Retention and pruning go by these; those of keys may be cut."""
        low, high = line.bounds("lower_bounds"), line.bounds("upper_bounds")
        for bounds, time in zip((low, high), rows.times or (None, None), strict=True):
            said = struct.unpack("<q", bounds[TIME])[0] if TIME in bounds else None
            if said != (time and (time - _START) // _US):
                raise Wrong(f"{about} has times of {rows.times}, its bounds say {said}")
        if not low[KEY] <= rows.keys[0].encode() <= rows.keys[1].encode() <= high[KEY]:
            raise Wrong(f"{about} has keys {rows.keys[0]} to {rows.keys[1]}, its bounds say otherwise")

    def _delete_file(self, table: TableState, line: Line, about: str) -> None:
        deletes = self.decoder.deleted(line.path)
        if line.rows != len(deletes):
            raise Wrong(f"{about} has {len(deletes)} deletes, and its entry says {line.rows}")
        if line.content == EQUALITY_DELETES and line.equality_ids != [*table.schema.get("identifier-field-ids", ())]:
            raise Wrong(f"{about} deletes by the columns {line.equality_ids}")

    # -- the summary

    def _summary(self, snapshot: Snapshot, parent: Snapshot | None) -> None:
        """Each counter is right: Spark's stream loses rows by a wrong one, and the brake weighs by totals."""
        counts = self.counted(snapshot)
        wanted = dict[str, int]()
        if snapshot.ours:
            counts |= self._merged(snapshot, parent)
            keys = (PARTITIONS, *MERGES) if snapshot.said.get("bookkeeper.reason") == "merge" else (PARTITIONS,)
            wanted = {key: counts[key] for key in (*COUNTERS, *keys)}
            if odd := snapshot.said.keys() - wanted.keys() - OWN:
                raise Wrong(f"{snapshot.about} says {sorted(odd)}, which no rule here knows")
        for key in wanted or COUNTERS:
            if int(snapshot.said.get(key, 0)) != counts[key]:
                raise Wrong(f"{snapshot.about} says {key} = {snapshot.said.get(key, 0)}, it is {counts[key]}")

    def counted(self, snapshot: Snapshot) -> Counter[str]:
        """What each counter of the summary must say; one that it does not say is 0."""
        counts, partitions = Counter[str](), set[tuple[int, tuple[int | None, ...]]]()
        for manifest in self.decoder.manifests(snapshot):
            lines = self.decoder.lines(manifest.path)
            if manifest.path not in self._totals:
                live = [line for line in lines if line.status != DELETED]
                self._totals[manifest.path] = sum((_total(line) for line in live), Counter[str]())
            counts += self._totals[manifest.path]
            for line in lines if manifest.snapshot == snapshot.id else ():
                if line.status != EXISTING:
                    counts += _change(line)
                    partitions.add((manifest.spec, line.partition))
        counts[PARTITIONS] = len(partitions)
        return counts

    def _merged(self, snapshot: Snapshot, parent: Snapshot | None) -> dict[str, int]:
        before = {item.path for item in self.decoder.manifests(parent)} if parent is not None else set[str]()
        now = self.decoder.manifests(snapshot)
        made = [item for item in now if item.snapshot == snapshot.id]
        kept = len(now) - len(made)
        processed = sum(item.files[EXISTING] or 0 for item in made)
        return dict(zip(MERGES, (len(made), len(before - {item.path for item in now}), kept, processed), strict=True))


def _transformed(partition_field: Mapping[str, Any], moment: datetime) -> int:
    """The value of a partition field for a row of this time (Iceberg spec, "Partition Transforms")."""
    assert partition_field["source-id"] == TIME, partition_field
    units = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
    return (moment - _START) // units[partition_field["transform"]]


def _int(bound: bytes) -> int:
    value: int = struct.unpack("<i", bound)[0]
    return value


def _total(line: Line) -> Counter[str]:
    """What a live file adds to the totals."""
    own = {"data-files": 1, "records": line.rows} if line.content == DATA else {"delete-files": 1, **_deletes(line)}
    return Counter({f"total-{key}": count for key, count in own.items()}) + Counter({"total-files-size": line.bytes})


def _change(line: Line) -> Counter[str]:
    """What a file that a snapshot adds or removes is counted as."""
    adds = line.status != DELETED
    if line.content == DATA:
        what, own = "added" if adds else "deleted", {"data-files": 1, "records": line.rows}
    else:
        kind = KINDS[line.content]
        what, own = "added" if adds else "removed", {"delete-files": 1, f"{kind}-delete-files": 1, **_deletes(line)}
    size = {("added" if adds else "removed") + "-files-size": line.bytes}
    return Counter({f"{what}-{key}": count for key, count in own.items()} | size)


def _deletes(line: Line) -> dict[str, int]:
    return {f"{KINDS[line.content]}-deletes": line.rows}


def names_of(text: str) -> Iterator[tuple[str, str, int, int]]:
    """The txlogs that a summary names: writer, run, first and last sequence."""
    for part in text.split():
        run, _, span = part.rpartition(":")
        writer, _, incarnation = run.partition(".")
        first, _, last = span.partition("-")
        yield writer, incarnation, int(first), int(last)
