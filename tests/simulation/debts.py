"""
What is to be done on a simulated table, found by reading its bytes: see `liveness` for how long each may take.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.simulation import folder_files
from tests.simulation.account import reasons
from tests.simulation.decoder import DATA, EQUALITY_DELETES, Line
from tests.simulation.disk import Object
from tests.simulation.folder_files import COLUMNS, CONSUMERS, PENDING, REASON, REJECTED, REWRITES, TXLOG, Marks
from tests.simulation.oracle import Oracle
from tests.simulation.snapshot_rules import TIME
from tests.simulation.table_state import MARKS, Snapshot

_START, _US = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
#: of the table in each world
OLDER_THAN, RETAIN_LAST, METADATA_KEEP, PREVIOUS = timedelta(minutes=2), 5, timedelta(minutes=5), 10
MARKS_KEEP, ORPHAN_AGE, BRAKE = timedelta(hours=2), timedelta(hours=2), 0.9
#: files of a quiet lot are rewritten when there are more than so many
FAN_IN, SPANS = 4, 16
METADATA = ".metadata.json"
#: of a keyed table: what was rejected for this holds its writer, until a person gives it up
HOLD = ("FileMissing", "IncarnationPruned")


class Debts:
    """The debts of one table; each method finds those of one kind, as items that stay the same while they are there."""

    def __init__(self, oracle: Oracle, keep: timedelta, location: Callable[[], str]) -> None:
        """`location` is that of the current metadata.json."""
        self.oracle, self.keep, self.location = oracle, keep, location

    def _in(self, place: str) -> list[tuple[str, Object]]:
        """The last segments of what lies in a part of the folder."""
        return [(at.rpartition("/")[2], item) for at, item in self.oracle.disk.under(f"{self.oracle.folder}/{place}")]

    @property
    def _marks(self) -> Marks:
        return folder_files.marks(self.oracle.table.properties[MARKS])

    def _ago(self, span: timedelta) -> int:
        """So long ago, in ms since 1970."""
        return (self.oracle.clock() - span - _START) // timedelta(milliseconds=1)

    # -- the folder

    def uncommitted(self) -> Iterator[Hashable]:
        """Pending txlogs that are not in; one that waits for a rejected one of its writer waits for a person."""
        why = reasons(self.oracle) if self.oracle.keyed else {}
        held = {folder_files.name_of(name).writer for name in why if why[name] in HOLD}
        for name, _ in self._in(PENDING):
            if name not in self.oracle.txlogs.done and folder_files.name_of(name).writer not in held:
                yield name

    def unconsumed(self) -> Iterator[Hashable]:
        """Pending txlogs that are in."""
        return (name for name, _ in self._in(PENDING) if name in self.oracle.txlogs.done)

    def copy_behind(self) -> Iterator[Hashable]:
        """What marks.json says, where the table's marks say something else: also while these move on."""
        marks, copy = self._marks, self.oracle.txlogs.copy
        if marks.snapshot is not None and (copy is None or copy.marks != marks):
            yield None if copy is None else copy.marks.snapshot

    def card_behind(self) -> Iterator[Hashable]:
        """The table's schema, where the card has another one."""
        card = folder_files.card(self.oracle.disk.get(f"{self.oracle.folder}/card.json").data)
        if card["schema"]["schema-id"] != self.oracle.table.schema["schema-id"]:
            yield self.oracle.table.schema["schema-id"]

    def unswept_in(self) -> Iterator[Hashable]:
        """Rejected txlogs that are in."""
        marks = self._marks
        return (name for name in reasons(self.oracle) if marks.has(folder_files.name_of(name)))

    def unswept_lost(self) -> Iterator[Hashable]:
        """Rejected txlogs whose position was taken."""
        return (name for name, why in reasons(self.oracle).items() if why == "PositionTaken")

    def unreplayed(self) -> Iterator[Hashable]:
        """Rejected txlogs that a person replays at once, and whose position fits."""
        positions = self._marks.positions
        for name, why in reasons(self.oracle).items():
            txlog = self.oracle.waiting.get(name) if why == "IncarnationPruned" and not self.oracle.keyed else None
            if txlog is not None and (not txlog.position or txlog.previous == positions.get(txlog.name.writer)):
                yield name

    def unsettled_rewrites(self) -> Iterator[Hashable]:
        return (name for name, _ in self._in(REWRITES))

    def unswept_rewrites(self) -> Iterator[Hashable]:
        names = (name.removesuffix(REASON) for name, _ in self._in(REJECTED))
        return (name for name in names if name.endswith(".avro") and not name.endswith(TXLOG))

    def unanswered(self) -> Iterator[Hashable]:
        """Requests for columns."""
        return (name for name, _ in self._in(COLUMNS))

    def unswept_answers(self) -> Iterator[Hashable]:
        return (name for name, _ in self._in(REJECTED) if name.endswith(".json") and ".avro" not in name)

    def journals(self) -> Iterator[Hashable]:
        journal = self.oracle.journal.read()
        return iter([tuple(journal["expire"])] if journal is not None else [])

    # -- marks

    def unpruned(self) -> Iterator[Hashable]:
        """Runs that were idle for long, and that no name in the folder needs; of a keyed table a newest one stays."""
        marks, named = self._marks, set[tuple[str, str]]()
        for place in (PENDING, REJECTED):
            names = (folder_files.name_of(name) for name, _ in self._in(place) if name.endswith(TXLOG))
            named |= {(name.writer, name.incarnation) for name in names}
        newest = {writer: max(run for of, run in marks.runs if of == writer) for writer, _ in marks.runs}
        for (writer, run), mark in marks.runs.items():
            is_kept = (writer, run) in named or (self.oracle.keyed and newest[writer] == run)
            if mark.seen_ms < self._ago(MARKS_KEEP) and not is_kept:
                yield writer, run

    # -- the table's files

    def unretained(self) -> Iterator[Hashable]:
        """Files of which every row is too old; none while they are so many that the brake holds them back."""
        head = self.oracle.table.head
        live = self.oracle.decoder.live(head) if head is not None else ()
        data = [item.line for item in live if item.line.content == DATA]
        gone = [line for line in data if (at := self._newest(line)) is not None and at < self._ago(self.keep) * 1000]
        rows = sum(line.rows for line in gone), sum(line.rows for line in data)
        if len(gone) <= BRAKE * len(data) and rows[0] <= BRAKE * rows[1]:
            yield from (line.path for line in gone)

    def _newest(self, line: Line) -> int | None:
        """
        The time of its newest row, in microseconds since 1970; None where there is none, or may be a null: other
        programs need not count the nulls, and a column that is required has none.
        """
        bound, nulls = line.bounds("upper_bounds").get(TIME), line.counts("null_value_counts").get(TIME)
        column = next(item for item in self.oracle.table.schema["fields"] if item["id"] == TIME)
        if line.content != DATA or bound is None or nulls or (nulls is None and not column["required"]):
            return None
        found: int = struct.unpack("<q", bound)[0]
        return found

    def unfolded(self) -> Iterator[Hashable]:
        head = self.oracle.table.head
        for item in self.oracle.decoder.live(head) if head is not None else ():
            if item.line.content == EQUALITY_DELETES:
                yield item.line.path

    def uncompacted(self) -> Iterator[Hashable]:
        """Lots of many files: of one partition, that go past retention at about the same time, and not soon."""
        head, step = self.oracle.table.head, self.keep // SPANS // _US
        if head is None or self.oracle.keyed:  # what deletes apply to is left alone
            return
        lots = defaultdict[Hashable, int](int)
        for item in self.oracle.decoder.live(head):
            newest = self._newest(item.line)
            if newest is not None and newest >= self._ago(self.keep) * 1000 + 2 * step:
                lots[item.spec, item.line.partition, newest // step] += 1
        yield from (lot for lot, count in lots.items() if count > FAN_IN)

    def orphans(self) -> Iterator[Hashable]:
        """Files that nothing names: also an entry of a manifest that says that a file was deleted names it."""
        table, journal = self.oracle.table, self.oracle.journal.read()
        named = (
            self.oracle.named()
            | self._named_in_folder()
            | {path for sizes in (journal or {"files": {}})["files"].values() for path in sizes}
        )
        manifests = {item.path for each in table.snapshots.values() for item in self.oracle.decoder.manifests(each)}
        named |= {line.path for path in manifests for line in self.oracle.decoder.lines(path)}
        for folder in ("data", "metadata"):
            for at, _ in self.oracle.disk.under(f"{table.location}/{folder}"):
                if at not in named and not at.endswith(METADATA):
                    yield at

    def _named_in_folder(self) -> set[str]:
        """What txlogs name, a forger's too."""
        found = set[str]()
        for place in (PENDING, REJECTED):
            for name, item in self._in(place):
                if TXLOG in name and not name.endswith(REASON):
                    txlog = folder_files.txlog(item.data)
                    found.update(txlog.files, txlog.deletes)
        return found

    def old_metadata(self) -> Iterator[Hashable]:
        """Metadata files that were replaced long ago, but for the last few."""
        table, old = self.oracle.table, self._ago(METADATA_KEEP)
        log = table.logged
        replaced = {name: at for (name, _), (_, at) in zip(log, [*log[1:], ("", table.updated_ms)], strict=True)}
        kept = {name for name, _ in log[-PREVIOUS:]} | {self.location()}
        for at, item in self.oracle.disk.under(f"{table.location}/metadata"):
            if at.endswith(METADATA) and at not in kept:
                written_ms = (item.modified - _START) // timedelta(milliseconds=1)
                if max(written_ms, replaced.get(at, 0)) < old:
                    yield at

    # -- snapshots

    def unexpired(self) -> Iterator[Hashable]:
        """Snapshots of main before all that must stay, and those beside it, once they are old enough."""
        table, old = self.oracle.table, self._ago(OLDER_THAN)
        main = [*table.main()][::-1]
        at = {snapshot.id: index for index, snapshot in enumerate(main)}
        needed = [record.snapshot for record in self._records()]
        stays = [max(len(main) - RETAIN_LAST, 0), *(at.get(number or 0, 0) for number in needed)]
        stays += [at[number] for number in table.refs.values() if number in at]
        stays += [index for index, snapshot in enumerate(main) if snapshot.at_ms >= old][:1]
        stays += [index for index, snapshot in enumerate(main) if snapshot.operation == "append"][-1:]
        if self._marks.snapshot is not None:
            stays.append(at.get(self._marks.snapshot, 0))
        yield from (snapshot.id for snapshot in main[: min(stays)])
        if all(number in at for number in needed):
            yield from (item.id for item in self._beside(at) if item.at_ms < old)

    def _beside(self, main: Iterable[int]) -> Iterator[Snapshot]:
        """Snapshots that are not on main, no ref names, and are not the newest append of all."""
        table = self.oracle.table
        named = {*main, *table.refs.values()}
        append = max((item.number for item in table.snapshots.values() if item.operation == "append"), default=0)
        return (item for item in table.snapshots.values() if item.id not in named and item.number != append)

    def _records(self) -> list[folder_files.Record]:
        found = [(name.removesuffix(".json"), item) for name, item in self._in(CONSUMERS) if name.endswith(".json")]
        return [folder_files.record(name, item.data) for name, item in found]

    def records(self) -> dict[str, str]:
        """The place in the record of each consumer."""
        return {record.name: record.place for record in self._records()}

    def finders(self) -> dict[str, Any]:
        """By the name of the bound."""
        return {
            "a txlog is committed or rejected": self.uncommitted,
            "a consumed txlog is deleted": self.unconsumed,
            "marks.json says what the table says": self.copy_behind,
            "the card shows the table's schema": self.card_behind,
            "rows past retention are dropped": self.unretained,
            "equality deletes are folded": self.unfolded,
            "a rewrite is committed or rejected": self.unsettled_rewrites,
            "small files become few": self.uncompacted,
            "snapshots expire": self.unexpired,
            "the reaper's journal is carried out": self.journals,
            "old metadata.json files are deleted": self.old_metadata,
            "orphans are swept": self.orphans,
            "a rejected txlog that is in is swept": self.unswept_in,
            "a txlog that lost its position is swept": self.unswept_lost,
            "a rejected rewrite is swept": self.unswept_rewrites,
            "an answer to a request for columns is swept": self.unswept_answers,
            "marks of idle runs are pruned": self.unpruned,
            "a request for a column is answered": self.unanswered,
            "a replay gets in": self.unreplayed,
        }
