"""
The consumers of a simulated table: runs of one consumer, or the members of a group, with their place in a database, in
Parquet files, or in the txlog folder. Whatever happens, each row that appends added is in the output once.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.catalogs.commit import load_table
from bookkeeper.consumers.consumer import Batch, Consumer
from bookkeeper.consumers.group import ConsumerGroup
from bookkeeper.consumers.place_keepers import ParquetPlace, PlaceKeeper, SqlitePlace
from bookkeeper.consumers.registration import FolderPlace
from bookkeeper.consumers.source import BEGINNING, END, Source
from bookkeeper.errors import BookkeeperError, NotPossible, PlaceExpired, RolledBack
from tests.simulation import folder_files
from tests.simulation.decoder import Wrong, never_caught, versions
from tests.simulation.folder_files import CONSUMERS
from tests.simulation.schedule import BEFORE, CRASH, CRASH_AFTER, LOST, Call, Scheduler
from tests.simulation.traits import FOLDER, PARQUET, SQL

if TYPE_CHECKING:
    from tests.simulation.world import World

NAME, MEMBERS = "sums", 2
#: what a commit of a database can meet
COMMITS = frozenset({BEFORE, LOST, CRASH, CRASH_AFTER})


class Inline:
    """A pool of threads that has none."""

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def submit(self, act: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(act(*given))
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            done.set_exception(error)
        return done

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        pass


class Output(Protocol):
    """Where the rows of one run go: `keeper` makes the place of a consumer, `write` a batch and its place."""

    def keeper(self) -> PlaceKeeper: ...

    def write(self, rows: list[str], commit: Callable[[pa.Table | None], None], batch: Batch) -> None: ...

    def close(self) -> None:
        """Its run has ended."""


class Connection:
    """A connection of sqlite3 whose commits are calls of the scheduler: a reply may be lost."""

    def __init__(self, path: str, scheduler: Scheduler) -> None:
        self._to, self._scheduler = sqlite3.connect(path, uri=True, timeout=0), scheduler

    def commit(self) -> None:
        if self._to.in_transaction:
            self._scheduler.call(Call("commit rows", "output", COMMITS), self._to.commit, sqlite3.OperationalError)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


class Database:
    """Rows and places in SQLite."""

    def __init__(self, path: str, scheduler: Scheduler) -> None:
        self.connection = Connection(path, scheduler)

    def keeper(self) -> PlaceKeeper:
        return SqlitePlace(self.connection)

    def write(self, rows: list[str], commit: Callable[[pa.Table | None], None], batch: Batch) -> None:
        try:
            self.connection.executemany("INSERT INTO rows VALUES (?)", [(row,) for row in rows])
            if not rows:
                self.connection.execute("DELETE FROM rows WHERE 1 = 0")  # begins the transaction
            commit(None)
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise

    def close(self) -> None:
        self.connection.rollback()
        self.connection.close()


class Files:
    """Rows and places in Parquet files."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def keeper(self) -> PlaceKeeper:
        return ParquetPlace(self.store)

    def write(self, rows: list[str], commit: Callable[[pa.Table | None], None], batch: Batch) -> None:
        commit(pa.table({"row": pa.array(rows, pa.string())}))

    def close(self) -> None:
        pass


class Objects:
    """Rows in an object for each batch, the place in the txlog folder: at least once."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def keeper(self) -> PlaceKeeper:
        return FolderPlace()

    def write(self, rows: list[str], commit: Callable[[pa.Table | None], None], batch: Batch) -> None:
        if rows:
            self.store.create(f"{self.store.disk.versions}.json", json.dumps(rows).encode())
        commit(None)

    def close(self) -> None:
        pass


class Reading:
    """Consumers, run after run, in two processes; what they have read, and whether it is all and once."""

    def __init__(self, world: "World") -> None:
        self.world, self.traits = world, world.traits
        self.path = f"file:output-{id(self)}?mode=memory&cache=shared"
        #: it stays open, for the database goes with its last connection
        self.database = sqlite3.connect(self.path, uri=True, timeout=0)
        self.database.execute("CREATE TABLE rows (row TEXT)")
        self.url = "s3://simulated/output"
        self.runs: dict[str, tuple[Consumer | ConsumerGroup, Output]] = {}
        #: rows that are before its start
        self.before = set[str]()
        self.begun = self.has_read = False
        self._files = dict[str, list[str]]()
        #: whether rows were given up: a rollback, or snapshots that others expired
        self.skipped = False

    def close(self) -> None:
        for _, output in self.runs.values():
            output.close()
        self.database.close()

    def die(self, actor: str) -> None:
        if (run := self.runs.pop(actor, None)) is not None:
            run[1].close()

    @property
    def rows(self) -> list[str]:
        """The rows in the output."""
        if self.traits.place == SQL:
            return [row for (row,) in self.database.execute("SELECT row FROM rows")]
        for at, item in self.world.disk.under(self.url):
            if at not in self._files:
                self._files[at] = json.loads(item.data) if self.traits.place == FOLDER else _column(item.data)
        return [row for rows in self._files.values() for row in rows]

    def step(self, actor: str, dice: Random) -> None:
        try:
            self._step(actor)
        except BookkeeperError:
            self.die(actor)
            raise
        except sqlite3.Error as error:
            self.die(actor)
            self.world.counts["the output's database failed, or was locked"] += 1
            self.world.scheduler.tell(f"{actor}: {error}")

    def _step(self, actor: str) -> None:
        # A reaper that read the consumers before this one registered may commit while it reads its first rows.
        first = not self.has_read
        try:
            self._read(actor)
        except (PlaceExpired, RolledBack) as error:
            if self._is_stale(actor):
                raise
            if isinstance(error, PlaceExpired) and not (self.world.foreign_expiry or first):
                raise Wrong(f"the reaper expired what a consumer needs: {error}") from error
            self.skipped = True
            if actor in self.runs:
                self._go_on(self.runs[actor][0])
            raise

    def _go_on(self, consumer: Consumer | ConsumerGroup) -> None:
        """With what is live of the rows that were lost, if the table can tell which these are: none is read twice."""
        try:
            consumer.catch_up()
            self.world.counts["consumers caught up"] += 1
        except NotPossible:
            consumer.skip_lost()

    def _is_stale(self, actor: str) -> bool:
        """Whether another run has moved on a place that this one reads from: nothing is kept for this one."""
        run = self.runs[actor][0] if actor in self.runs else None
        opened = run._open.values() if isinstance(run, ConsumerGroup) else () if run is None else (run,)
        durable = {item.name: self.durable(item.name) for item in opened}
        # Parquet files hold no place before the first batch.
        return any(durable[item.name] not in (None, str(item.place)) for item in opened)

    def durable(self, name: str) -> str | None:
        """The place of a consumer or of a share, as it lies in the output."""
        if self.traits.place == SQL:
            found = self.database.execute("SELECT place FROM bookkeeper_places WHERE consumer = ?", (name,))
            return next((place for (place,) in found), None)
        if self.traits.place == FOLDER:
            at = f"{self.world.folder_url}/{CONSUMERS}/{name}.json"
            return folder_files.record(name, self.world.disk.get(at).data).place if self.world.disk.has(at) else None
        files = [item.data for at, item in self.world.disk.under(self.url) if at.startswith(f"{self.url}/{name}-")]
        kept = pq.read_schema(pa.BufferReader(files[-1])).metadata if files else {}
        return kept[ParquetPlace.KEY].decode() if files else None

    def _read(self, actor: str) -> None:
        if actor not in self.runs:
            output = self._output()
            try:
                self.runs[actor] = self._opened(actor, output), output
            except BaseException:
                output.close()
                raise
        consumer, output = self.runs[actor]
        for batch in self._batches(consumer):
            rows = versions(batch.table) if self.world.keyed else batch.table["key"].to_pylist()
            output.write(rows, lambda table, batch=batch: consumer.commit(batch, table), batch)  # type: ignore[misc]
            self.world.counts["rows consumed"] += len(rows)
            self.has_read = self.has_read or bool(rows)

    def _batches(self, consumer: Consumer | ConsumerGroup) -> Iterator[Batch]:
        return consumer.batches(follow=False)

    def _output(self) -> Output:
        world = self.world
        if self.traits.place == SQL:
            return Database(self.path, world.scheduler)
        return (Files if self.traits.place == PARQUET else Objects)(world.store(self.url))

    def _opened(self, actor: str, output: Output) -> Consumer | ConsumerGroup:
        world, catalog = self.world, self.world.catalog
        source = Source(
            world.settings,
            lambda: load_table(catalog, world.settings.identifier),  # type: ignore[arg-type]
            world.oracle.table.uuid,
            world.store(world.folder_url),
        )
        start = END if world.keyed else BEGINNING  # from the beginning it would read what delete files hide
        how: dict[str, Any] = {"clock": world.scheduler.clock, "wait": world.scheduler.wait}
        if self.traits.group:
            share = f"{1 + actor.endswith('b')}/{MEMBERS}"
            opened: Consumer | ConsumerGroup = ConsumerGroup(source, NAME, share, output.keeper, start, **how)
        else:
            opened = Consumer.at(source, NAME, output.keeper(), start, **how)
        self.begun = True
        return opened

    @never_caught
    def registered(self, name: str, data: bytes) -> None:
        """
        A record was written. What was committed while a run was being opened is behind the start, or before it: the
        record tells, of a group that of the first share.
        """
        record = folder_files.record(name, data)
        place = folder_files.place(record.place)
        is_first = name in (NAME, f"{NAME}-1of{MEMBERS}")
        if record.place == record.start and not self.world.keyed and place.files is None and place.snapshot is not None:
            raise Wrong(f"{name}, which reads all rows, begins after snapshot {place.snapshot}")
        # Beginnings that expired before anything was read move on.
        if is_first if record.place == record.start else place.is_beginning:
            self.before |= self.world.oracle.passed_over(place)

    def look(self) -> None:
        """After all is read."""
        rows = self.rows
        if self.traits.place != FOLDER and len(set(rows)) != len(rows):
            twice = sorted({row for row in rows if rows.count(row) > 1})
            raise Wrong(f"a consumer has rows twice: {twice[:5]}")
        if missed := self.missed():
            raise Wrong(f"a consumer missed rows: {sorted(missed)[:5]}")

    def missed(self) -> set[str]:
        """Rows that appends added, and that are not in the output."""
        if self.skipped:
            return set()
        oracle = self.world.oracle
        return set(oracle.streamed) - set(self.rows) - self.before - oracle.abandoned


def _column(data: bytes) -> list[str]:
    table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    # A file that only moves the place may have the table's columns.
    return table["row"].to_pylist() if table.num_rows else []
