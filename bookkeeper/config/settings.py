"""
Every setting with its default, in one place; frozen once read.

`load.py` reads them from TOML: a key is the field's name with `-` for `_`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bookkeeper.config.hosts import check_names
from bookkeeper.config.share import parse

Bytes = int
#: the reaper reads txlogs up to this size: max-txlog-bytes may be raised up to it
MOST_TXLOG_BYTES = 2**28


def option(default: Any, help: str, **limits: Any) -> Any:
    """
    A field with its default, one line of help and its limits (`least`, `most`, `choices`, `size`, `check`).
    """
    meta = {"help": help, **limits}
    if isinstance(default, list):
        return field(default_factory=lambda: tuple(default), metadata=meta)
    return field(default=default, metadata=meta)


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@dataclass(frozen=True, slots=True)
class Catalog:
    """`[catalog]`: `name`, and every other key goes to pyiceberg (and, translated, to Spark) as it is."""

    name: str = "lake"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Daemon:
    """`[bookkeeper]`: the daemon itself."""

    every: timedelta = option(_seconds(1), "pause between two ticks", least=_seconds(0.01))
    hint_pause: timedelta = option(
        _seconds(0.2),
        "with discover = notify: least time between commits on the average; up to three may follow one another at once",
        least=_seconds(0.01),
    )
    reload: timedelta = option(_seconds(10), "longest time without asking the catalog for foreign commits")
    not_ready_after: int = option(5, "failed ticks in a row until the bookkeeper calls itself not ready", least=1)
    not_ready_age: timedelta = option(
        timedelta(minutes=5),
        "a table is not ready when its oldest pending txlog is older than this plus the window",
        least=_seconds(1),
    )
    backoff_most: timedelta = option(_seconds(30), "longest pause between two failing ticks")
    stop_patience: timedelta = option(_seconds(20), "how long SIGTERM waits for ticks that are under way")
    lease: bool = option(True, "let one bookkeeper at a time work on a table; off is safe too, but slower")
    read_bytes: Bytes = option(
        2**28, "bytes of txlogs that all tables together read at once", size=True, least=2**20, restart=True
    )
    listen: str = option(
        "127.0.0.1:9464",
        'where page, /metrics, /healthz and /readyz are served; port 0: any free one; "": nowhere',
        restart=True,
    )
    allowed_hosts: tuple[str, ...] = option(
        [],
        "further names by which `listen` may be asked (the HTTP header Host); loopback names, `listen`'s own and the "
        "address that was connected to always may",
        check=check_names,
        restart=True,
    )
    share: str = option(
        "1/1",
        "this bookkeeper's share of the tables, of how many; other bookkeepers take the other shares",
        check=parse,
    )
    failover_after: timedelta = option(
        _seconds(15),
        "a table of another share is taken once no bookkeeper has worked on it for this long",
        least=_seconds(0),
    )
    offer_every: timedelta = option(
        _seconds(60), "a table of another share is offered back this often, for up to two seconds", least=_seconds(1)
    )


@dataclass(frozen=True, slots=True)
class Retention:
    """`[tables.NAME.retention]`: which whole files are dropped."""

    column: str | None = option(None, "timestamp column that `keep` compares; default: the first timestamp column")
    keep: timedelta | None = option(None, "drop files whose newest row is older than this; default: drop none")
    max_age: timedelta | None = option(None, "drop files committed longer ago than this; default: drop none")
    keep_bytes: Bytes | None = option(
        None,
        "drop the oldest commits' files while the table has more bytes than this; default: drop none",
        size=True,
        least=1,
    )
    every: timedelta = option(_seconds(60), "pause between two checks for files to drop")
    brake: float = option(
        0.5,
        "largest share of the live files, or of their rows, that one step may drop unasked; 1.0 switches it off",
        least=0.0,
        most=1.0,
    )


@dataclass(frozen=True, slots=True)
class Reaper:
    """`[reaper]`, and `[tables.NAME.reaper]` for one table: what is expired when. The article's figures."""

    every: timedelta = option(_seconds(120), "pause between two runs", least=_seconds(1))
    older_than: timedelta | None = option(
        None,
        "expire snapshots older than this; default: the table's history.expire.max-snapshot-age-ms, else 10m",
    )
    retain_last: int | None = option(
        None,
        "snapshots always kept; default: the table's history.expire.min-snapshots-to-keep, else 100",
        least=1,
    )
    metadata_keep: timedelta = option(_seconds(3600), "old metadata.json files are kept this long", least=_seconds(1))
    max_hold: timedelta = option(
        timedelta(days=1), "a consumer holds snapshots back no longer than this, then it is cut off", least=_seconds(1)
    )
    max_hold_bytes: Bytes = option(
        2**21,
        "a consumer holds back no more snapshots than take this much of metadata.json",
        size=True,
        least=2**16,
    )
    max_hold_snapshots: int | None = option(
        None, "a consumer holds back no more snapshots than this, either; default: no such bound", least=1
    )
    engine: str = option(
        "own", "what expires snapshots: the reaper itself, or Iceberg's procedure on Spark", choices=("own", "spark")
    )
    spark_command: tuple[str, ...] = option(
        [], "words that start spark_jobs.maintain for engine = spark; default: this Python's own"
    )
    deletes_per_second: int | None = option(None, "files deleted per second at most; default: no limit", least=1)
    orphans_every: timedelta = option(_seconds(3600), "pause between two sweeps for orphans", least=_seconds(3600))


@dataclass(frozen=True, slots=True)
class Compaction:
    """`[tables.NAME.compaction]`: which small files become few, and what rewrites them."""

    engine: str | None = option(
        None,
        "what rewrites small files: `reaper run` itself, a job on Spark (spark_jobs.compact), or nothing; default: the "
        "table's property bookkeeper.compaction, which `init` sets to own in a table that it makes; else off",
        choices=("own", "spark", "off"),
    )
    fan_in: int = option(16, "so many files of about one size in a partition become one", least=2, most=1000)
    target_file_size: Bytes | None = option(
        None,
        "most bytes of a rewritten file, 512 MiB at most without Spark; files of half of it are left alone; default: "
        "the table's write.target-file-size-bytes, else 256 MiB",
        size=True,
        least=1024,
    )
    quiet: timedelta = option(
        _seconds(3600), "a partition without a new file for this long is rewritten a last time", least=_seconds(1)
    )
    every: timedelta = option(_seconds(5), "pause between two looks at the table", least=_seconds(1))
    bytes_per_second: Bytes | None = option(
        None, "bytes of data files read and written per second at most; default: no limit", size=True, least=1024
    )


@dataclass(frozen=True, slots=True)
class Evolve:
    """`[tables.NAME.evolve]`: which changes of the schema writers may ask for."""

    add: bool = option(False, "add an optional column for a field that the table does not have")
    widen: bool = option(
        False, "widen a column (int to long, float to double, decimals to more digits) for a value that does not fit"
    )
    every: timedelta = option(_seconds(5), "pause between two looks for requests", least=_seconds(0.1))
    most_columns: int = option(500, "columns of the table, beyond which none is added on request", least=1, most=2000)
    columns_per_hour: int = option(100, "columns that are added on request within an hour", least=1)


@dataclass(frozen=True, slots=True)
class Fold:
    """`[tables.NAME.fold]`: when equality deletes of a keyed table become position deletes, and what one fold takes."""

    enabled: bool = option(True, "let `bookkeeper run` fold the table; `bookkeeper fold` does it in any case")
    files: int = option(8, "fold when so many equality delete files are live", least=1, most=10_000)
    after: timedelta = option(_seconds(60), "fold when the oldest of them is this old", least=_seconds(1))
    max_keys: int = option(10_000_000, "deleted keys of one fold; it leaves what is more", least=1)
    max_key_bytes: Bytes = option(2**30, "bytes of these keys in memory", size=True, least=2**20)
    max_files: int = option(5000, "data files that one fold reads, and position delete files that it writes", least=1)
    max_bytes: Bytes = option(2**32, "bytes of the data files that one fold reads", size=True, least=1)
    max_rows: int = option(100_000_000, "rows in the data files that one fold reads", least=1)
    pause_most: timedelta = option(
        _seconds(3600), "longest time that folds wait for a job on Spark that asks for it", least=_seconds(0)
    )
    pause_files: int = option(500, "such a job is not waited for while so many equality delete files are live", least=1)


@dataclass(frozen=True, slots=True)
class Service:
    """`[tables.NAME.service]`: what the catalog's service does with a table that is maintained by it."""

    orphan_age: timedelta = option(
        timedelta(days=3), "age from which it deletes files that no snapshot names", least=timedelta(hours=2)
    )
    snapshot_age: timedelta = option(
        timedelta(days=5), "age from which it expires snapshots, whatever consumers need", least=timedelta(hours=1)
    )
    compacts: bool = option(True, "whether it compacts data files; a table with keys is refused where it does")


@dataclass(frozen=True, slots=True)
class Table:
    """`[tables.NAME]`: one table, its folder, its limits, and how `init` makes it."""

    name: str = ""
    identifier: str = option("", "namespace.table in the catalog; default: the section's name in namespace `default`")
    folder: str | None = option(None, "txlog folder, any fsspec URL; default: <table location>/_bookkeeper")
    credentials: str = option(
        "configuration",
        "keys of the storage for writers: those of the configuration, or those that the catalog hands out with the "
        "table (`catalog`), which writers then load",
        choices=("configuration", "catalog"),
    )
    location: str | None = option(None, "location for `init`; default: the catalog decides")
    window: timedelta = option(_seconds(0), "commit when the oldest pending txlog is this old", least=_seconds(0))
    max_files: int = option(10_000, "data files per commit", least=1)
    max_bytes: Bytes = option(2**40, "bytes of data files per commit", size=True, least=1)
    max_txlogs: int = option(10_000, "txlogs per commit", least=1)
    max_txlog_bytes: Bytes = option(2**26, "a larger txlog is rejected", size=True, least=1024, most=MOST_TXLOG_BYTES)
    discover: str = option(
        "list",
        "how new txlogs are found: by listing, by asking for each writer's next one, or by notification (inotify; "
        "`queue`)",
        choices=("list", "probe", "notify"),
    )
    queue: str | None = option(
        None, "with discover = notify: URL of the SQS or Azure Storage Queue to which the storage reports new objects"
    )
    look_every: int = option(
        10, "with discover = probe or notify: list the folder at least every so many ticks", least=1
    )
    check_files: bool = option(True, "check that every data file exists, with the size and format that its txlog names")
    marks_keep: timedelta = option(
        timedelta(days=1),
        "the mark of an incarnation idle for this long is dropped",
        least=timedelta(hours=2),
    )
    max_writers: int = option(
        4000,
        "names of writers that marks have room for; positions longer than 128 bytes have room for 128 bytes a name",
        least=1,
    )
    marks_renew: timedelta = option(
        timedelta(minutes=10),
        "while only others commit, an empty commit renews the marks this often, so that no expiry overtakes them",
        least=_seconds(1),
    )
    pending_limit: int = option(1000, "writers wait while this many txlogs are pending", least=1)
    file_format: str = option("parquet", "format of the writers' data files", choices=("parquet", "avro"))
    file_names: str | None = option(
        None,
        "strict: each data file is called <writer>-<incarnation>-<sequence>-... after its txlog; loose: other names "
        "with its incarnation are taken, with a warning; default: as the card says, strict for new tables",
        choices=("strict", "loose"),
    )
    compression: str = option("zstd", "codec of the writers' data files", choices=("zstd", "snappy", "gzip", "none"))
    target_file_size: Bytes = option(2**27, "writers roll to a new file at this size", size=True, least=1024)
    roll_after: timedelta = option(_seconds(10), "writers roll to a new file at this age", least=_seconds(0.01))
    orphan_age: timedelta = option(
        timedelta(days=3), "age from which an unnamed file counts as an orphan", least=timedelta(hours=1)
    )
    maintained_by: str = option(
        "reaper",
        "what deletes files that no snapshot names: `reaper run`, or a service of the catalog (`service` below)",
        choices=("reaper", "catalog"),
    )
    partition_by: tuple[str, ...] = option(
        ["day(timestamp)"], "partition fields for `init`, such as day(ts), bucket(16, key)"
    )
    schema: tuple[Mapping[str, Any], ...] = option(
        [], "columns for `init`: {name, type, required}; default: timestamp, key, value"
    )
    key: tuple[str, ...] = option(
        [], "columns that identify a row, for `init`: rows are then upserted and deleted by key; default: append-only"
    )
    op_column: str | None = option(
        None, "text column of a keyed table that says what a row did to its key; with it, streams see deletes"
    )
    order_column: str | None = option(
        None, "column (long) of a keyed table, filled by writers, that orders the versions of a key in a stream"
    )
    dead_letters: bool = option(
        False,
        "add the table NAME__rejected for messages that are no rows: `writer kafka` puts them there and goes on",
    )
    consumers: tuple[Mapping[str, Any], ...] = option(
        [], "queries in Spark that read the table: {name, checkpoint, source, available-now}"
    )
    retention: Retention = Retention()
    reaper: Reaper = Reaper()
    compaction: Compaction = Compaction()
    evolve: Evolve = Evolve()
    fold: Fold = Fold()
    service: Service = Service()


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration."""

    catalog: Catalog = Catalog()
    #: `[storage]` and the storage keys of `[catalog]`: how folder and table are reached
    storage: Mapping[str, str] = field(default_factory=dict)
    bookkeeper: Daemon = Daemon()
    reaper: Reaper = Reaper()
    tables: Mapping[str, Table] = field(default_factory=dict)
    source: str = "defaults"
