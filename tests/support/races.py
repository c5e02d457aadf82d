"""
A queue that Spark shares: its clock is the machine's, for Spark's is, and its rows are read by Spark and pyiceberg.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bookkeeper.config.settings import Reaper
from bookkeeper.errors import Retry
from bookkeeper.tick.tick import Bookkeeper
from reaper import reap
from tests.support.lake import Lake, WallClock

CATALOG = "races"
#: as eager as can be: everything that may go, goes
EAGER = Reaper(older_than=timedelta(0), retain_last=1)
#: columns to change: Spark drops, renames and widens these, and readers of keys do not care
COLUMNS = (
    {"name": "timestamp", "type": "timestamptz", "required": True},
    {"name": "key", "type": "string", "required": True},
    {"name": "value", "type": "binary"},
    *({"name": f"small{number}", "type": "int"} for number in range(4)),
    *({"name": f"text{number}", "type": "string"} for number in range(4)),
)


class SparkLake(Lake):
    """A queue in a catalog that Spark knows as `races`."""

    spark: Any = None

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(
            root, WallClock(), COLUMNS, catalog=CATALOG, name=name, identifier=f"demo.{name}", reaper=EAGER
        )
        self.table_name = f"{CATALOG}.{self.settings.identifier}"

    def sql(self, text: str, **words: Any) -> list[Any]:
        """What Spark answers; `{table}` is its name in SQL, `{ident}` in a procedure, `{now}` the time."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
        found: list[Any] = self.spark.sql(
            text.format(table=self.table_name, ident=self.settings.identifier, now=now, **words)
        ).collect()
        return found

    def fresh(self, *arguments: Any, **settings: Any) -> Bookkeeper:
        """A bookkeeper that loads the table at every tick, so that each tick sees what Spark did."""
        book = self.book(*arguments, **settings)
        book.loaded.reload = timedelta(0)
        return book

    def settle(self, ticks: int = 10) -> None:
        """What a restarted bookkeeper makes of it."""
        book = self.fresh()
        for _ in range(ticks):
            with suppress(Retry):
                book.tick(self.clock.now)
            if not self.pending():
                break

    def reap(self) -> None:
        """One eager run of the reaper; a conflict is the next run's."""
        with suppress(Retry):
            reap(self.catalog, self.settings, self.clock.now)

    def seen(self) -> list[str]:
        """The keys that both Spark and pyiceberg read, which must be the same."""
        self.spark.catalog.refreshTable(self.table_name)
        ours, theirs = self.keys(), [row.key for row in self.sql("SELECT key FROM {table} ORDER BY key")]
        assert ours == sorted(theirs)
        return ours
