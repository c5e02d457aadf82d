"""A consumer to be killed: `CONFIG KIND WHERE` puts the rows into an output, one a transaction, with a line each."""

import sqlite3
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from bookkeeper.consumers import Consumer, DuckDBPlace, ParquetPlace, PostgresPlace, SqlitePlace
from bookkeeper.consumers.consumer import Batch, Limits

INSERT = "INSERT INTO output VALUES (?)"


def opened(kind: str, where: str) -> Any:
    """The connection to the output, with a table for it."""
    if kind == "sqlite":
        connection: Any = sqlite3.connect(where)
        connection.execute("CREATE TABLE IF NOT EXISTS output (key TEXT)")
    elif kind == "postgres":
        import psycopg2

        connection = psycopg2.connect(where)
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS output (key TEXT)")
    elif kind == "duckdb":
        import duckdb

        connection = duckdb.connect(where)
        connection.execute("CREATE TABLE IF NOT EXISTS output (key TEXT)")
    else:
        Path(where).mkdir(exist_ok=True)
        connection = where
    return connection


PLACES = {"sqlite": SqlitePlace, "postgres": PostgresPlace, "duckdb": DuckDBPlace, "parquet": ParquetPlace}


def put(kind: str, connection: Any, consumer: Consumer, batch: Batch) -> None:
    """The rows and the place, in one transaction."""
    rows = [(key,) for key in batch.table["key"].to_pylist()]
    if kind == "sqlite":
        with connection:
            connection.executemany(INSERT, rows)
            consumer.commit(batch)
    elif kind == "postgres":
        with connection, connection.cursor() as cursor:
            cursor.executemany(INSERT.replace("?", "%s"), rows)
            consumer.commit(batch)
    elif kind == "duckdb":
        connection.execute("BEGIN")
        for row in rows:
            connection.execute(INSERT, row)
        consumer.commit(batch)
        connection.execute("COMMIT")
    else:
        consumer.commit(batch, batch.table.select(["key"]))


def main(config: str, kind: str, where: str) -> None:
    """Everything that is visible."""
    connection = opened(kind, where)
    with Consumer.open(config, name=f"to-{kind}", place=PLACES[kind](connection), limits=Limits(1)) as consumer:
        for batch in consumer.batches(follow=False):
            put(kind, connection, consumer, batch)
            print(consumer.place, flush=True)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main(*sys.argv[1:])
