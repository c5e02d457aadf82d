"""
Where a consumer keeps its place: with the output, in one transaction with it. (In the txlog folder: `registration`.)

A place moves only from the one that this run read or wrote last, and only while no other run has taken over: of two
runs at one place one gets an error, and its transaction must end with a rollback. Output that is not in that
transaction is not fenced: such a place is checked before rows are handed out, and they carry its epoch.
"""

import io
import os
import re
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.errors import AlreadyExists, ConsumerFenced, Missing, NotPossible, PlaceRefused, Unfit
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store, create_once

TABLE = "bookkeeper_places"
_IDLE = 0  # libpq's transaction status without a transaction
_NO_TRANSACTION = "the connection commits each statement: the place would move without the rows"


class PlaceKeeper(Protocol):
    """
    Keeps the place of one consumer as text, beside the output.

    `read` and `begin` need a connection without an open transaction. `epoch`: of two runs the later one has the greater
    number; 0 where the place has none.
    """

    @property
    def epoch(self) -> int: ...

    def read(self, consumer: str) -> str | None:
        """The place that is committed, None where there is none."""

    def begin(self, consumer: str, start: str) -> str:
        """Takes over from every earlier run of this consumer; returns its place, which is `start` for a new one."""

    def commit(self, consumer: str, before: str, after: str, output: pa.Table | None) -> None:
        """Moves the place; raises ConsumerFenced when it is not `before`, or another run has taken over."""

    def check(self, consumer: str) -> None:
        """Raises ConsumerFenced when another run has taken over, where output is not undone with the place."""

    def move(self, consumer: str, before: str, after: str, like: pa.Schema) -> None:
        """
        Moves the place without rows: durably, or with the transaction that is open. A file that is written for it has
        the last one's schema, or `like`.
        """

    def durable(self, consumer: str) -> str | None:
        """The place that is durable now, whichever run wrote it; None while it is not known: in an open transaction."""


class SqlPlace:
    """
    A row in a table of the output's database; `commit` moves it in the transaction that is open.

    A crash before the transaction's end leaves neither its rows nor its place.
    """

    mark = "?"
    begin_statement = "BEGIN"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        #: how often the consumer was opened: a run that is not the last one moves nothing
        self.epoch = 0

    def read(self, consumer: str) -> str | None:
        self._check_idle()
        self._make()
        found = self._execute(f"SELECT place FROM {TABLE} WHERE consumer = ?", consumer)
        self._end()
        return str(found[0][0]) if found else None

    def begin(self, consumer: str, start: str) -> str:
        # Two statements, each whole: a crash in between leaves the start, which the next run takes over.
        self._check_idle()
        self._execute(
            f"INSERT INTO {TABLE} (consumer, epoch, place) VALUES (?, 0, ?) ON CONFLICT DO NOTHING", consumer, start
        )
        self._end()
        found = self._execute(
            f"UPDATE {TABLE} SET epoch = epoch + 1 WHERE consumer = ? RETURNING epoch, place", consumer
        )
        self._end()
        if not found:
            raise ConsumerFenced(f"the place of {consumer} was deleted while it was opened")
        self.epoch, place = found[0]
        return str(place)

    def commit(self, consumer: str, before: str, after: str, output: pa.Table | None) -> None:
        if output is not None:
            raise NotPossible("the output goes into the database by statements of your own, in the same transaction")
        self._check_transaction()
        self._swap(consumer, before, after)

    def check(self, consumer: str) -> None:
        """Nothing to check: rows of a fenced run are rolled back with its place."""

    def move(self, consumer: str, before: str, after: str, like: pa.Schema) -> None:
        is_alone = not self._in_transaction()
        self._swap(consumer, before, after)
        if is_alone:
            self._end()

    def _swap(self, consumer: str, before: str, after: str) -> None:
        where = "consumer = ? AND epoch = ? AND place = ?"
        changed = self._changed(f"UPDATE {TABLE} SET place = ? WHERE {where}", after, consumer, self.epoch, before)
        if changed != 1:
            raise ConsumerFenced(f"another run of {consumer} has taken over, or its last transaction was rolled back")

    def durable(self, consumer: str) -> str | None:
        return None if self._in_transaction() else self.read(consumer)

    def _make(self) -> None:
        if not self._is_there():
            try:
                self._execute(
                    f"CREATE TABLE IF NOT EXISTS {TABLE} "
                    "(consumer VARCHAR(63) PRIMARY KEY, epoch BIGINT NOT NULL, place VARCHAR NOT NULL)"
                )
                self._end()
            except Exception:
                # Of two runs that make it at one moment Postgres refuses one.
                self._connection.rollback()
                if not self._is_there():
                    raise

    def _is_there(self) -> bool:
        try:
            self._execute(f"SELECT 1 FROM {TABLE} WHERE 1 = 0")
        except Exception:  # noqa: BLE001 - drivers share no root of errors; another cause shows when it is made
            self._connection.rollback()
            return False
        self._end()
        return True

    def _check_idle(self) -> None:
        if self._in_transaction():
            raise NotPossible("the connection is in a transaction", hint="Commit it, or roll it back, before you open.")

    def _check_transaction(self) -> None:
        """Raises NotPossible when the next statement would be a transaction of its own."""
        raise NotImplementedError

    def _in_transaction(self) -> bool:
        raise NotImplementedError

    def _end(self) -> None:
        self._connection.commit()

    def _execute(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.replace("?", self.mark), values)
            return cursor.fetchall() if cursor.description else ()
        finally:
            cursor.close()

    def _changed(self, statement: str, *values: object) -> int:
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.replace("?", self.mark), values)
            return int(cursor.rowcount)
        finally:
            cursor.close()


class SqlitePlace(SqlPlace):
    """In a SQLite database, by a connection of `sqlite3`."""

    def __init__(self, connection: Any) -> None:
        if getattr(connection, "autocommit", -1) is False:
            raise NotPossible(
                "a SQLite connection with autocommit=False is always in a transaction",
                hint="Open it without `autocommit`, and use `with connection:` for each transaction.",
            )
        super().__init__(connection)

    def _in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def _check_transaction(self) -> None:
        commits_each = self._connection.isolation_level is None or getattr(self._connection, "autocommit", -1) is True
        if commits_each and not self._connection.in_transaction:
            raise NotPossible(_NO_TRANSACTION, hint="Execute BEGIN first, and COMMIT after the place.")


class PostgresPlace(SqlPlace):
    """In a Postgres database, by a connection of psycopg2 or psycopg."""

    mark = "%s"

    def _in_transaction(self) -> bool:
        return int(self._connection.info.transaction_status) != _IDLE

    def _check_transaction(self) -> None:
        if self._connection.autocommit and not self._in_transaction():
            raise NotPossible(_NO_TRANSACTION, hint="Turn autocommit off, or use `with connection.transaction():`.")


class DuckDBPlace(SqlPlace):
    """In a DuckDB database; the transaction needs BEGIN and COMMIT, for DuckDB begins none by itself."""

    def _in_transaction(self) -> bool:
        # Outside of a transaction each statement is one of its own.
        first, second = (self._execute("SELECT txid_current()")[0][0] for _ in range(2))
        return bool(first == second)

    def _check_transaction(self) -> None:
        if not self._in_transaction():
            raise NotPossible(_NO_TRANSACTION, hint="Execute BEGIN first, and COMMIT after the place.")

    def _make(self) -> None:
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (consumer VARCHAR PRIMARY KEY, epoch BIGINT NOT NULL, place VARCHAR)"
        )

    def _end(self) -> None:
        """Each statement was a transaction of its own."""

    def _execute(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        # A cursor of DuckDB is a connection with transactions of its own.
        found: Sequence[Sequence[Any]] = self._connection.execute(statement, list(values)).fetchall()
        return found

    def _changed(self, statement: str, *values: object) -> int:
        return int(self._execute(statement, *values)[0][0])


class ParquetPlace:
    """
    In the Parquet files of the output: `commit` writes one, `NAME-<number>.parquet`, and the place is in its footer.

    The file is created whole and durable or not at all, and only if its number is free; so rows and place are one
    commit. Every file of the folder counts, so a reader may take them all. The newest one must stay.
    """

    KEY, RUN = b"bookkeeper.place", b"bookkeeper.run"
    epoch = 0

    def __init__(self, folder: str | Store, options: dict[str, str] | None = None) -> None:
        """`folder`: a path, made if missing, or a URL; `options`: pyiceberg's keys for it. Raises ConfigInvalid."""
        self._store = _opened(folder, options or {}) if isinstance(folder, str) else folder
        self._number = 0
        self._place: str | None = None
        self._run = os.urandom(8).hex().encode()
        #: of the newest file
        self._schema: pa.Schema | None = None

    def read(self, consumer: str) -> str | None:
        return self._newest(consumer)[1]

    def begin(self, consumer: str, start: str) -> str:
        self._number, place = self._newest(consumer)
        self._place = start if place is None else place
        return self._place

    def commit(self, consumer: str, before: str, after: str, output: pa.Table | None) -> None:
        if before != self._place:
            raise ConsumerFenced(f"the place of {consumer} is {self._place}")
        if output is None:
            raise NotPossible("this place is in the output: give commit() the rows to write")
        # Of two runs at one place each has bytes of its own, so that one of them is fenced.
        kept = {**(output.schema.metadata or {}), self.KEY: after.encode(), self.RUN: self._run}
        out = io.BytesIO()
        pq.write_table(output.replace_schema_metadata(kept), out, compression="zstd")
        key = self._key(consumer, self._number + 1)
        try:
            create_once(self._store, key, out.getvalue())
        except (AlreadyExists, Missing) as exc:
            raise ConsumerFenced(f"{self._store.url}/{key} was written by another run of {consumer}") from exc
        self._number, self._place = self._number + 1, after

    def check(self, consumer: str) -> None:
        """Nothing to check: a fenced run creates no file."""

    def move(self, consumer: str, before: str, after: str, like: pa.Schema) -> None:
        self.commit(consumer, before, after, (self._schema or like).empty_table())

    def durable(self, consumer: str) -> str | None:
        try:
            self._store.size(self._key(consumer, self._number + 1))
        except Missing:
            return self._place
        return self._newest(consumer)[1]  # of another run, or of this one, whose reply was lost

    def _newest(self, consumer: str) -> tuple[int, str | None]:
        """The number of the newest file, and the place in it."""
        name = re.compile(rf"{re.escape(consumer)}-(\d{{12}})\.parquet")
        found = (name.fullmatch(item.key) for item in self._store.list(""))
        number = max((int(match[1]) for match in found if match), default=0)
        if not number:
            return 0, None
        key = self._key(consumer, number)
        try:
            self._schema = pq.read_schema(pa.BufferReader(self._store.read(key)))
            return number, str((self._schema.metadata or {})[self.KEY].decode())
        except (pa.ArrowException, KeyError, UnicodeDecodeError, OSError, Unfit) as exc:
            raise PlaceRefused(f"{self._store.url}/{key} holds no place") from exc

    @staticmethod
    def _key(consumer: str, number: int) -> str:
        return f"{consumer}-{number:012d}.parquet"


def _opened(folder: str, options: dict[str, str]) -> Store:
    if ":" in folder:
        return open_store(folder, options)
    # An output that was moved away is not replaced by an empty one: the consumer's record knows that it had a place.
    os.makedirs(folder, exist_ok=True)
    return open_store(os.path.abspath(folder))
