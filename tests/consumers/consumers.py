"""Consumers for tests: on a small lake, with the output and its place in a database or in files."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.config.settings import Reaper, Settings
from bookkeeper.consumers import Consumer, ConsumerGroup, FolderPlace, ParquetPlace, SqlitePlace
from bookkeeper.consumers.consumer import Batch, Limits
from bookkeeper.history.consumer_state import evaluate, read_all
from bookkeeper.history.registry import Registry
from bookkeeper.stores.local import LocalStore
from reaper.run import reap
from tests.support.faults import Faults, FaultyStore, HalfDone
from tests.support.lake import Lake, Writes

NAME = "sums"


def settings_of(lake: Lake) -> Settings:
    return Settings(catalog=lake.catalog_settings, tables={lake.settings.name: lake.settings})


def opened(lake: Lake, place: Any = None, rows: int = 1000, **how: Any) -> Consumer:
    """A new run of the consumer."""
    how = {"name": NAME, "clock": lake.clock, "wait": lambda seconds: True, **how}
    return Consumer.open(settings_of(lake), place=place, limits=Limits(rows), **how)


def member(lake: Lake, share: str, place: Any = FolderPlace, **how: Any) -> ConsumerGroup:
    """A new run of a member of the group."""
    return ConsumerGroup.open(
        settings_of(lake), name="group", share=share, place=place, clock=lake.clock, wait=lambda _: True, **how
    )


def keys(batch: Batch) -> list[str]:
    found: list[str] = batch.table["key"].to_pylist()
    return found


def commit(lake: Lake, writer: Writes, *groups: str) -> None:
    """A commit for each group of one-letter keys."""
    for group in groups:
        writer.publish(*group)
        lake.tick()


def expire(lake: Lake, keep: int = 1, **reaper: Any) -> None:
    """What the reaper does once everything but the last snapshots is old."""
    settings = replace(lake.settings, reaper=Reaper(older_than=timedelta(0), retain_last=keep, **reaper))
    reap(lake.catalog, settings, lake.clock.move(hours=1), release_brake=True, open_store=lake.store)


def committed(consumer: Consumer | ConsumerGroup) -> Iterator[Batch]:
    """The batches there are, each committed when the next one is asked for."""
    for batch in consumer.batches(follow=False):
        yield batch
        consumer.commit(batch)


def take(consumer: Consumer | ConsumerGroup, most: int = 1000) -> list[str]:
    """The keys of the next batches, each committed."""
    found: list[str] = []
    for _, batch in zip(range(most), consumer.batches(follow=False), strict=False):
        found += keys(batch)
        consumer.commit(batch)
    return found


def taken(lake: Lake, most: int = 1000, **how: Any) -> list[str]:
    """What a run reads that keeps its place in the folder."""
    with opened(lake, **how) as consumer:
        return take(consumer, most)


def state(lake: Lake) -> Any:
    """The state of the only consumer, as the reaper sees it."""
    (found,) = evaluate(
        read_all(Registry(lake.folder.store), lake.store), lake.table().metadata, lake.settings.reaper, lake.clock.now
    )
    return found


class Output:
    """
    Where the rows of a consumer go, with their place; a run that crashed leaves what is durable.

    `faults` see every change of the output, and of the txlog folder.
    """

    def __init__(self, root: Path, faults: Faults | None = None) -> None:
        self.root, self.faults = root, faults or Faults()
        root.mkdir(exist_ok=True)

    @contextmanager
    def run(self, lake: Lake, rows: int = 2, **how: Any) -> Iterator["Run"]:
        raise NotImplementedError

    def keys(self) -> list[str]:
        """What the output holds, in its order."""
        raise NotImplementedError

    def take(self, lake: Lake, rows: int = 2, **how: Any) -> None:
        """One run: everything that is visible."""
        with self.run(lake, rows, **how) as run:
            run.take()


class FaultyConnection:
    """A connection to SQLite whose statements and commits go through `faults`; a crash ends it without a commit."""

    def __init__(self, connection: sqlite3.Connection, faults: Faults) -> None:
        self.connection, self.faults = connection, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def cursor(self) -> Any:
        return FaultyCursor(self.connection.cursor(), self.faults)

    def commit(self) -> None:
        self._around("commit", self.connection.commit)

    def executemany(self, statement: str, rows: Any) -> Any:
        return self._around(f"insert {statement}", lambda: self.connection.executemany(statement, rows))

    def _around(self, operation: str, act: Any) -> Any:
        try:
            return self.faults.around(operation, act)
        except HalfDone as half:
            raise half.error from None

    def __enter__(self) -> "FaultyConnection":
        return self

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:
        if error is None:
            self.commit()
        else:
            self.connection.rollback()


class FaultyCursor:
    """A cursor of such a connection."""

    def __init__(self, cursor: sqlite3.Cursor, faults: Faults) -> None:
        self.cursor, self.faults = cursor, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cursor, name)

    def execute(self, statement: str, values: Any = ()) -> Any:
        verb = "read" if statement.startswith("SELECT") else "change"
        try:
            return self.faults.around(f"{verb} {statement}", lambda: self.cursor.execute(statement, values))
        except HalfDone as half:
            raise half.error from None


class Run:
    """A run of a consumer that puts its batches into an output."""

    def __init__(self, consumer: Consumer, put: Any) -> None:
        self.consumer, self.put = consumer, put

    def take(self) -> None:
        for batch in self.consumer.batches(follow=False):
            self.put(self.consumer, batch)


class SqliteOutput(Output):
    """A table in SQLite."""

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.root / "output.db")
        connection.execute("CREATE TABLE IF NOT EXISTS output (key TEXT)")
        return connection

    @contextmanager
    def run(self, lake: Lake, rows: int = 2, **how: Any) -> Iterator[Run]:
        connection = self.connect()
        faulty = FaultyConnection(connection, self.faults)

        def put(consumer: Consumer, batch: Batch) -> None:
            with faulty:
                faulty.executemany("INSERT INTO output VALUES (?)", [(key,) for key in keys(batch)])
                consumer.commit(batch)

        try:
            with opened(lake, SqlitePlace(faulty), rows, **how) as consumer:
                yield Run(consumer, put)
        finally:
            connection.close()

    def keys(self) -> list[str]:
        connection = self.connect()
        try:
            return [key for (key,) in connection.execute("SELECT key FROM output ORDER BY rowid")]
        finally:
            connection.close()


class ParquetOutput(Output):
    """A folder of Parquet files."""

    @contextmanager
    def run(self, lake: Lake, rows: int = 2, **how: Any) -> Iterator[Run]:
        (self.root / "output").mkdir(exist_ok=True)
        store = FaultyStore(LocalStore(str(self.root / "output")), self.faults, "output")
        with opened(lake, ParquetPlace(store), rows, **how) as consumer:
            yield Run(consumer, lambda it, batch: it.commit(batch, batch.table.select(["key"])))

    def keys(self) -> list[str]:
        files = sorted((self.root / "output").glob("*.parquet"))
        found: list[str] = pa.concat_tables([pq.read_table(path) for path in files])["key"].to_pylist()
        return found


class KeyedOutput(Output):
    """Files that are replaced by the key of their batch, with the place in the txlog folder."""

    @contextmanager
    def run(self, lake: Lake, rows: int = 2, **how: Any) -> Iterator[Run]:
        (self.root / "output").mkdir(exist_ok=True)
        store = FaultyStore(LocalStore(str(self.root / "output")), self.faults, "output")

        def put(consumer: Consumer, batch: Batch) -> None:
            store.replace(batch.key, json.dumps(keys(batch)).encode())
            consumer.commit(batch)

        with opened(lake, FolderPlace(), rows, **how) as consumer:
            yield Run(consumer, put)

    def keys(self) -> list[str]:
        files = (path for path in (self.root / "output").glob("*-*-*") if path.suffix != ".tmp")
        return [key for path in files for key in json.loads(path.read_bytes())]
