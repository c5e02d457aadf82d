"""
The files of a keyed table that no txlog names yet: operations are collected in a step, whose end makes files of them.

Of each key the last operation of a step wins. A step has its own relative sequence number, which all its files bear but
the shadow file: that has the number before, so that the step's own equality deletes hide its rows from batch readers.

    step 1   data 1, deletes 1, shadow 0
    step 2   data 2, deletes 2, shadow 1

Where nothing is deleted, files are an append: those of several steps in a row have one number, and are written on.
"""

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.contract.names import started_ms
from bookkeeper.contract.txlog import MOST_SPAN, StepFile
from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.format.transforms import physical
from writers.files.keyed_spec import KeyedSpec
from writers.files.last_of_each_key import DELETE, INSERT, Versions, versions
from writers.files.operations import Operations, changes, operations
from writers.files.rolling_writer import DELETES, NamedFiles, RollingWriter, StoredFiles
from writers.files.write_spec import WriteSpec
from writers.timing import AtOnce, Clock, Wait

#: a step ends when it would hold more, in bytes of Arrow data and in operations
STEP_BYTES, STEP_ROWS = 2**27, 2**20
#: The order-column: 42 bits for a time in milliseconds, which are enough until 2109, and 21 for a number in a txlog.
ORDER_BITS, TIME_BITS = 21, 42
#: what the op-column says, by the kind of operation
OPS = ("I", "U", "D")
#: which versions of a key that is written several times in a step become rows of the stream
LAST, ALL = "last", "all"
NO_ROOM = "this txlog would have too many steps, or versions of one key"
NO_DELETES = "the table's partition spec has changed: deletes could miss rows"
_MOST_PARTS = 1024


def first_order(incarnation: str, sequence: int) -> int:
    """
    The first of the order-column's numbers in this txlog: (start of the run in ms + sequence) * 2^21.

    They rise over the runs of a writer because each run starts later than every earlier one's start plus its last
    sequence, in ms (publisher.py). Raises NotPossible when a signed long cannot hold it.
    """
    at = started_ms(incarnation) + sequence
    if at >> TIME_BITS:
        raise NotPossible(f"run {incarnation} starts too late for an order-column", hint="Is the clock right?")
    return at << ORDER_BITS


class Steps(RollingWriter):
    """Takes operations, gives data files and delete files."""

    def __init__(
        self,
        stem: str,
        incarnation: str,
        keep_all: bool,
        clock: Clock,
        wait: Wait,
        at_once: AtOnce,
        attempt: str = "",
        orders: int = 0,
    ) -> None:
        """`orders`: the first number of the order-column, within the first txlog."""
        super().__init__(stem, clock, wait, at_once, attempt)
        self._incarnation, self.keep_all = incarnation, keep_all
        self._step = _Step()
        self._start_over()
        self._orders = orders

    def _start_over(self) -> None:
        self._number = self._taken = self._orders = 0
        self._appending = False

    def rows(self) -> int:
        """Operations taken since the last publish."""
        return self._taken

    def bytes(self) -> int:
        """See RollingWriter."""
        return super().bytes() + self._step.bytes

    def open_since(self) -> None:
        """None: no age ends a step, because each step costs readers a delete file."""

    def full(self) -> bool:
        """See RollingWriter."""
        return self._number >= MOST_SPAN - 1 or self._orders >= 1 << ORDER_BITS - 1

    def has_room(self, count: int, spec: WriteSpec, sequence: int) -> bool:
        """
        Whether this txlog has a step and numbers of the order-column for so many operations more.

        Only the end of a step shows how many numbers it took: it ends here when there may be too few.
        """
        most = 1 << ORDER_BITS
        if self.keep_all and self._orders + self._step.rows + count > most:
            self._end_step(spec, sequence)
        return self._number < MOST_SPAN - 1 and not (self.keep_all and self._orders + count > most)

    def check_kind(self, kind: int, table: str) -> None:
        """Nothing to check: a keyed table takes every kind."""

    def deletes_fit(self, kind: int, spec: WriteSpec) -> bool:
        """See RollingWriter."""
        return _keyed(spec).spec is not None or (kind == INSERT and not self.keep_all)

    def fit(self, rows: pa.Table, spec: WriteSpec, kind: int, deleted: pa.Array | None) -> Operations:
        """See RollingWriter."""
        if deleted is not None:
            return changes(rows, spec, _keyed(spec), kind, deleted)
        return operations(rows, spec, _keyed(spec), kind)

    def add(self, fitted: Operations, spec: WriteSpec, sequence: int) -> bool:
        """Take operations; returns whether a file was finished by them."""
        before = len(self._finished)
        for piece in fitted.pieces(STEP_ROWS, STEP_BYTES):
            self.since = self.since or self._clock()
            if self._step.rows + len(piece.kinds) > STEP_ROWS or self._step.bytes + piece.size() > STEP_BYTES:
                self._end_step(spec, sequence)
            self._step.add(piece)
            self._taken += len(piece.kinds)
        return len(self._finished) > before

    def orders(self) -> int:
        """See RollingWriter."""
        return self._orders

    def add_stored(self, given: Sequence[StoredFiles], at: datetime, data_path: str) -> None:
        """
        Take files that other processes have stored since `at`, as steps behind all that were taken before.

        So where two of them upsert one key, the later one's row is the only one. Only when no step is open. Raises
        NotPossible where the txlog has no room for so many steps, and then has taken nothing.
        """
        assert not (self._step.rows or self._open)
        last = self._number
        if last + sum(item.last for item in given) >= MOST_SPAN:
            raise NotPossible(NO_ROOM, hint="discard(results), then give each task fewer rows, and publish more often.")
        behind = list[StoredFiles]()
        for item in given:
            data, deletes = (tuple(StepFile(file, last + n) for file, n in items) for items in item.files)
            behind.append(item._replace(files=NamedFiles(data, deletes)))
            last += item.last
        super().add_stored(behind, at, data_path)
        self._number, self._appending = last, False
        self._orders = max(self._orders, *(item.orders for item in given))
        self._taken += sum(item.operations for item in given)

    def finish(self, spec: WriteSpec, sequence: int) -> None:
        """End the step and finish every open file."""
        self._end_step(spec, sequence)
        super().finish(spec, sequence)

    def _end_step(self, spec: WriteSpec, sequence: int) -> None:
        """All in memory. A crash at any later operation leaves files that no txlog names, for the orphan sweep."""
        if not self._step.rows:
            return
        ended = _Ended(
            self._step.joined(), spec, first_order(self._incarnation, sequence) + self._orders, self.keep_all
        )
        self._step, self._orders = _Step(), self._orders + ended.orders
        if not ended.deletes.num_rows:
            self._number += not self._appending
            self._appending = True
            super().take(ended.live, spec, sequence, self._number)
            return
        self._number, self._appending = self._number + 1, False
        # What was appended before has the shadow's number, and goes on with it.
        for rows, number in ((ended.shadow, self._number - 1), (ended.live, self._number)):
            super().take(rows, spec, sequence, number)
            super().finish(spec, sequence)
        self._delete(ended.deletes, spec, sequence)

    def _delete(self, keys: pa.Table, spec: WriteSpec, sequence: int) -> None:
        keyed = _keyed(spec)
        assert keyed.splitter is not None
        for part in keyed.splitter.split(keys):
            file = keyed.open_file()
            file.add(part.rows)
            key = self._key(part.path, sequence, DELETES)
            self._describe(key, file.finish(), "PARQUET", part.values, spec, self._number, deletes=True)

    def clear(self) -> None:
        """See RollingWriter."""
        super().clear()
        self._start_over()


class _Step:
    """The operations of a step as they came."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0
        self._kinds, self._keys, self._written = _Parts(), _Parts(), _Parts()

    def add(self, more: Operations) -> None:
        self.rows, self.bytes = self.rows + len(more.kinds), self.bytes + more.size()
        self._kinds.add(pa.table({"kind": more.kinds}))
        self._keys.add(more.keys)
        self._written.add(more.written)

    def joined(self) -> Operations:
        kinds = self._kinds.joined().column("kind").combine_chunks()
        return Operations(kinds, self._keys.joined(), self._written.joined())


class _Parts:
    """Tables of one schema; many small ones are joined now and then, for each takes some KiB beside its rows."""

    def __init__(self) -> None:
        self._tables = list[pa.Table]()
        self._joined = 0

    def add(self, table: pa.Table) -> None:
        self._tables.append(table)
        if len(self._tables) - self._joined >= _MOST_PARTS:
            self._tables[self._joined :] = [pa.concat_tables(self._tables[self._joined :]).combine_chunks()]
            self._joined += 1

    def joined(self) -> pa.Table:
        return pa.concat_tables(self._tables)


class _Ended:
    """
    The rows of an ended step: `live` ones, keys of `deletes` in their order, and the `shadow` rows of a stream.

    `orders` is how many numbers of the order-column it took: versions of one key have different ones, keys share them.
    """

    def __init__(self, step: Operations, spec: WriteSpec, first: int, keep_all: bool) -> None:
        self._keyed, self._arrow = _keyed(spec), spec.arrow
        self._kinds, keys, rows = step
        columns = [physical(column).combine_chunks() for column in keys.columns]
        self._written = pc.not_equal(self._kinds, pa.scalar(DELETE, pa.int8()))
        found = versions(columns, self._kinds, keep_all)
        self._order = pc.add(found.ranks, first)
        self.orders = 1 + pc.max(found.ranks).as_py()
        self.live = self._versions(rows, found.last)
        self.deletes = keys.take(found.touched)
        self.shadow = spec.arrow.empty_table()
        if self._keyed.op is not None:
            self.shadow = self._shadow(rows, keys, found, keep_all)

    def _versions(self, rows: pa.Table, wanted: pa.Array) -> pa.Table:
        """Those of the inserted and upserted rows that are wanted; the mask has all operations."""
        chosen = pc.and_(wanted, self._written)
        return self._filled(rows.filter(wanted.filter(self._written)), chosen)

    def _shadow(self, rows: pa.Table, keys: pa.Table, found: Versions, keep_all: bool) -> pa.Table:
        gone = pc.invert(self._written)
        if not keep_all:
            return self._tombstones(keys, pc.and_(gone, found.last))
        return pa.concat_tables([self._versions(rows, pc.invert(found.last)), self._tombstones(keys, gone)])

    def _tombstones(self, keys: pa.Table, wanted: pa.Array) -> pa.Table:
        chosen = keys.filter(wanted)
        columns = [
            chosen.column(field.name) if field.name in keys.column_names else _nulls(field, chosen.num_rows)
            for field in self._arrow
        ]
        return self._filled(pa.Table.from_arrays(columns, schema=self._arrow), wanted)

    def _filled(self, rows: pa.Table, chosen: pa.Array) -> pa.Table:
        """Rows with their op and order, where the table has columns for them."""
        op, order = self._keyed.op, self._keyed.order
        if op is not None:
            at = self._arrow.get_field_index(op)
            said = pa.array(OPS, self._arrow.field(at).type).take(self._kinds.filter(chosen))
            rows = rows.set_column(at, self._arrow.field(at), said)
        if order is not None:
            at = self._arrow.get_field_index(order)
            rows = rows.set_column(at, self._arrow.field(at), self._order.filter(chosen))
        return rows


def _nulls(field: pa.Field, count: int) -> pa.Array:
    """A column that says nothing; a required struct, which cannot be null, has members that say nothing."""
    if field.nullable or not pa.types.is_struct(field.type):
        return pa.nulls(count, field.type)
    members = list(field.type)
    return pa.StructArray.from_arrays([_nulls(member, count) for member in members], fields=members)


def _keyed(spec: WriteSpec) -> KeyedSpec:
    assert spec.keyed is not None
    return spec.keyed


def files_of(
    spec: WriteSpec,
    writer: str,
    incarnation: str,
    keep: str,
    clock: Clock,
    wait: Wait,
    at_once: AtOnce,
    attempt: str = "",
    orders: int = 0,
) -> RollingWriter:
    """
    The files of a run, or of an attempt at a task of it, none yet.

    Raises ConfigInvalid and NotPossible where `keep` does not fit the table.
    """
    keyed, stem = spec.keyed, f"{writer}-{incarnation}"
    if keep not in (LAST, ALL):
        raise ConfigInvalid(f"keep is {keep!r:.60}: {LAST!r} or {ALL!r} is allowed")
    if keep == ALL and (keyed is None or keyed.op is None):
        raise NotPossible(f"keep={ALL!r} needs an op-column, which {spec.card.table} does not have")
    if keyed is None:
        return RollingWriter(stem, clock, wait, at_once, attempt)
    return Steps(stem, incarnation, keep == ALL, clock, wait, at_once, attempt, orders)
