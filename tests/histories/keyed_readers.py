"""
What other readers see of a keyed world: DuckDB and iceberg-rust each time, pyiceberg where no equality delete is live,
Spark in the end.

Spark reads many snapshots in one query, by time travel.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.histories.decoded import local
from tests.histories.keyed_world import KeyedWorld
from tests.histories.readers import duckdb_session, log_goes_back, rust_rows
from tests.histories.sources import State

#: snapshots that Spark reads in one query
AT_ONCE = 6
Values = set[tuple[int, str | None]]


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot of a table of the catalog `lake`, and what it must show."""

    identifier: str
    snapshot: int
    values: Values


@dataclass
class Readers:
    """Each reads what `world` shows; `read` counts what was compared, by reader."""

    read: Counter[str] = field(default_factory=Counter)
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.duckdb = duckdb_session()

    def __call__(self, world: KeyedWorld, expected: State) -> None:
        values, table = {(key, row[0]) for key, row in expected.items()}, world.lake.table()
        self._compare("DuckDB", self._duckdb(table), values)
        if not log_goes_back(table):  # by a world's clock, which may be ahead of pyiceberg's
            self._compare("iceberg-rust", rust_rows(table, "id, value"), values)
        if not world.has_equality_deletes():
            found = table.scan(selected_fields=("id", "value")).to_arrow().to_pylist()
            self._compare("pyiceberg", [tuple(row.values()) for row in found], values)
        if not world.expire:
            self.moments.append(Moment(world.lake.settings.identifier, world.head() or 0, values))

    def _duckdb(self, table: Any) -> Sequence[Any]:
        location = local(table.metadata_location)
        found: Sequence[Any] = self.duckdb.execute(f"SELECT id, value FROM iceberg_scan('{location}')").fetchall()
        return found

    def _compare(self, reader: str, found: Sequence[Any], values: Values) -> None:
        assert len(found) == len(values) and {*found} == values, (
            f"{reader}: too much {[*({*found} - values)][:3]}, missing {[*(values - {*found})][:3]}, {len(found)} rows"
        )
        self.read[reader] += 1

    def by_spark(self, spark: Any) -> None:
        """Compares every moment that was noted."""
        for begin in range(0, len(self.moments), AT_ONCE):
            part = self.moments[begin : begin + AT_ONCE]
            for name in {item.identifier for item in part}:
                spark.sql(f"REFRESH TABLE lake.{name}")
            query = " UNION ALL ".join(
                f"SELECT {number} AS at, id, value FROM lake.{item.identifier} VERSION AS OF {item.snapshot}"
                for number, item in enumerate(part)
            )
            found: list[list[Any]] = [[] for _ in part]
            for row in spark.sql(query).collect():
                found[row[0]].append((row[1], row[2]))
            for item, rows in zip(part, found, strict=True):
                self._compare("Spark", rows, item.values)
        self.moments.clear()


def by_java(spark: Any, world: KeyedWorld) -> None:
    """
    Spark inserts or deletes (with delete files of positions) foreign rows, or runs one of Iceberg's procedures.
    """
    name, short = f"lake.{world.lake.settings.identifier}", world.lake.settings.identifier
    spark.sql(f"REFRESH TABLE {name}")
    what = world.dice.choice(["insert", "delete", "data", "positions", "manifests"])
    if what == "insert":
        new = world.new_foreign()
        values = ", ".join(f"({key}, '{row[0]}', TIMESTAMP '{row[1].isoformat()}')" for key, row in new.items())
        spark.sql(f"INSERT INTO {name} (id, value, timestamp) VALUES {values}")
        world.foreign |= new
    elif what == "delete":
        gone = world.dice.sample(sorted(world.foreign), min(2, len(world.foreign)))
        if gone:
            spark.sql(f"DELETE FROM {name} WHERE id IN ({', '.join(map(str, gone))})")
        for key in gone:
            del world.foreign[key]
    else:
        call = {
            "data": f"rewrite_data_files(table => '{short}', options => map('rewrite-all', 'true'))",
            "positions": f"rewrite_position_delete_files(table => '{short}', options => map('rewrite-all', 'true'))",
            "manifests": f"rewrite_manifests('{short}')",
        }[what]
        spark.sql(f"CALL lake.system.{call}").collect()
    world.did[f"Spark: {what}"] += 1


def table_of(worlds: Sequence[KeyedWorld], readers: Readers) -> list[str]:
    """
    What was done, what crashed where, and how many checks each reader passed, as lines.
    """
    did, crashes = sum((world.did for world in worlds), Counter[str]()), Counter[str]()
    for world in worlds:
        crashes += world.crashes
    checks = {"the spec's rule": sum(world.checks for world in worlds), **readers.read}
    return [
        f"{len(worlds)} histories, {sum(len(world.sources) for world in worlds)} writers",
        *(f"  {name:<24} {count:>5} checks, 0 wrong" for name, count in checks.items()),
        "  actions: " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in did.most_common()),
        f"  {crashes.total()} crashes: " + ", ".join(f"{name} {count}" for name, count in crashes.most_common()),
    ]
