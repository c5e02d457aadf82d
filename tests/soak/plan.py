"""
What a soak is made of: its times, its two tables and their configuration, and the command of each process.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.support.lake import written
from bookkeeper.catalogs.open import open_catalog
from tests.servers.process import free_port
from tests.support.configured import Queue

EVENTS = [
    {"name": "timestamp", "type": "timestamptz", "required": True},
    {"name": "writer", "type": "string", "required": True},
    {"name": "number", "type": "long", "required": True},
    {"name": "value", "type": "string"},
]
STATE = [
    {"name": "id", "type": "long", "required": True},
    {"name": "value", "type": "string"},
    {"name": "op", "type": "string"},
    {"name": "seq", "type": "long"},
]
#: seconds between two publishes of each writer
PAUSES = {"plain-0": 1.0, "plain-1": 1.4, "source-0": 1.2, "source-1": 1.7, "keyed-0": 1.5, "keyed-1": 2.1}
COPY, SPARK, COPIED = "copy", "spark", "copied"
#: the driver on Spark that writes, and the names of its two queries as writers
QUERIES, QUERY, UPSERTS = "queries", "query-0", "keyed-9"


@dataclass(frozen=True)
class Plan:
    """One soak: how long, where, by which seed; `light` is for a machine with few cores that others use too."""

    root: Path
    minutes: float
    seed: int
    light: bool = False
    spark: bool = True
    names: tuple[str, ...] = tuple(PAUSES)

    @property
    def seconds(self) -> float:
        """How long writers write."""
        return self.minutes * 60

    @property
    def keep(self) -> float:
        """Seconds that retention keeps: long enough for the drain in the end, short enough to drop most of the rows."""
        return _between(8, self.seconds / 3, 900)

    @property
    def older_than(self) -> float:
        """Seconds after which a snapshot expires."""
        return _between(4, self.seconds / 6, 150)

    def pause(self, rng: Random) -> float:
        """Seconds to the next kill."""
        share = min(1.0, self.seconds / 120)
        return rng.uniform(20 * share, 60 * share)

    def spark_pause(self, rng: Random) -> float:
        """Seconds to the next kill of the stream on Spark."""
        return rng.uniform(0.8, 1.2) * min(600, self.seconds / 2)

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "bookkeeper.toml"

    @property
    def checkpoint(self) -> str:
        """Where the stream on Spark keeps its place."""
        return f"file://{self.root}/checkpoint"

    @property
    def output(self) -> Path:
        """The database that the consumer writes."""
        return self.root / "copy.db"

    @property
    def writers(self) -> dict[str, float]:
        """The writers, and the pause of each."""
        return {name: PAUSES[name] * (1 if self.light else 0.5) for name in self.names}

    @property
    def journals(self) -> list[Path]:
        """Of each writer, also of the queries."""
        names = [*self.writers, *([QUERY, UPSERTS] if self.spark else [])]
        return [self.root / "journal" / name for name in names]

    def commands(self) -> dict[str, list[str]]:
        """The words that start each process; writers come last."""
        module, config = [sys.executable, "-m"], str(self.config)
        found = {
            "daemon": [*module, "bookkeeper", "run", "--config", config, "--log-format", "json"],
            "reaper": [*module, "reaper", "run", "--config", config, "--log-format", "json"],
            COPY: [*module, "tests.soak.roles", COPY, config, str(self.output)],
        }
        if self.spark:
            found[SPARK] = [*self.stream("30s" if self.seconds > 600 else "5s")]
            how = [str(self.config), str(self.root), str(self.seed), "4 seconds" if self.light else "2 seconds"]
            found[QUERIES] = [*module, "tests.soak.queries", *how, *self.conf()]
        for name, pause in self.writers.items():
            found[name] = [*module, "tests.soak.roles", name, config, str(self.root), str(self.seed), str(pause)]
        return found

    def stream(self, trigger: str) -> list[str]:
        """The stream on Spark into a table of its own."""
        words = [sys.executable, "-m", "spark_jobs.read_stream", "--config", str(self.config), "--table", "events"]
        words += ["--checkpoint", self.checkpoint, "--sink", f"table:demo.{COPIED}", "--consumer", SPARK]
        return [*words, "--trigger", trigger, "--progress", str(self.root / "progress.ndjson"), *self.conf()]

    def conf(self) -> list[str]:
        """Of a job on Spark."""
        cores = 1 if self.light else 2
        return [f"--conf=spark.master=local[{cores}]", "--conf=spark.ui.enabled=false"]

    def jobs(self) -> list[list[str]]:
        """Jobs on Spark that run in turns, once in a while."""
        module, config = [sys.executable, "-m"], ["--config", str(self.config)]
        fold = [*module, "spark_jobs.maintain", "fold", *config, "--table", "state", "--delete-files", "2"]
        compact = [*module, "spark_jobs.compact", *config, "--table", "events", "--older-than", "2m", "--wait", "2m"]
        return [[*fold, "--wait", "2m", *self.conf()], [*compact, *self.conf()]]


@dataclass
class Ground(Queue):
    """The tables on disk, once they are made."""

    plan: Plan
    listen: str

    @classmethod
    def make(cls, plan: Plan) -> "Ground":
        """New tables below `root`, which must not hold any."""
        plan.root.mkdir(parents=True, exist_ok=True)
        if plan.config.exists():
            raise FileExistsError(f"{plan.root} holds a soak already: take another folder, or remove it")
        (plan.root / "journal").mkdir()
        (plan.root / "logs").mkdir()
        listen = f"127.0.0.1:{free_port()}"
        made = cls(written(plan.config, _sections(plan, listen)), plan.root.as_uri(), plan, listen)
        made.init()
        return made

    def table(self, name: str = "events") -> Any:
        """As pyiceberg loads it; a copy too, which is in no configuration."""
        return open_catalog(self.settings.catalog).load_table(f"demo.{name}")


def local(location: str) -> Path:
    """
    The path of a location on this disk, as we spell it (file:///x) or Spark does (file:/x).
    """
    return Path(re.sub("^file:/*", "/", location))


def folder_of(path: str, table: str) -> str:
    """
    The URL of a table's txlog folder, by the configuration at `path`.
    """
    return Queue(Path(path), "").txlogs(table).store.url


def _sections(plan: Plan, listen: str) -> dict[str, dict[str, Any]]:
    """All that the programs can do is on."""
    root, shared = plan.root, {"discover": "notify", "orphan_age": "1h"}
    keep, every = _seconds(plan.keep), _seconds(_between(1, plan.keep / 16, 60))
    return {
        "catalog": {"name": "lake", "type": "sql", "uri": f"sqlite:///{root}/cat.db", "warehouse": f"file://{root}/wh"},
        "bookkeeper": {"listen": listen, "hint_pause": "1s"},
        "reaper": {
            "every": _seconds(_between(2, plan.older_than / 7, 20)),
            "older_than": _seconds(plan.older_than),
            "retain_last": 20,
            "metadata_keep": _seconds(4 * plan.older_than),
        },
        "tables.events": {"identifier": "demo.events", "schema": EVENTS, "partition_by": ["day(timestamp)"], **shared},
        "tables.events.retention": {"keep": keep, "every": every},
        "tables.events.compaction": {"engine": "own", "quiet": "1m"},
        "tables.state": {
            "identifier": "demo.state",
            "schema": STATE,
            "partition_by": [],
            "key": ["id"],
            "op_column": "op",
            "order_column": "seq",
            **shared,
        },
        "tables.state.fold": {"enabled": True},
    }


def _seconds(value: float) -> str:
    return f"{int(value * 1000)}ms"


def _between(least: float, value: float, most: float) -> float:
    return max(least, min(value, most))
