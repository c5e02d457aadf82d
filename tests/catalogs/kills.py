"""
All programs on a catalog that hands out keys which live for seconds, each killed at random: a bookkeeper that folds, a
reaper that compacts, a consumer in Python, writers with keys of their own and writers with the catalog's alone.

    python -m tests.catalogs.kills --seconds 600 --life 60 --seed 7
    python -m tests.catalogs.kills --seconds 1800 --life 60 --spark

With --spark also a stream on Spark, whose output is compared as the consumer's is, and compactions on Spark.

In the end each row is looked for in the table and in the consumer's output, the keyed table is compared with a replay,
and the storage says how often keys were used that had ended.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.support.lake import written
from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.open import STORAGE, open_catalog
from bookkeeper.commands.columns import schema_of
from bookkeeper.config.settings import Catalog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from tests.catalogs.grounds import GROUNDS, Ground
from tests.catalogs.on_spark import OUTPUT, ROLES, OnSpark, kind_of
from tests.servers.catalog_over import catalog_over
from tests.servers.proxy import Request
from tests.soak.account import WORK, Account, copied, read, replayed
from tests.soak.journal import Published, published
from tests.soak.plan import COPY, EVENTS, SPARK, STATE
from tests.support.configured import Queue, program, queue_with
from tests.support.crew import Crew
from tests.support.stores import content

_EVENTS, _STATE = "demo.events", "demo.state"
_ROWS = 200
_SECRET = re.compile(rb"(?:secret|token)-of-\d{4,}-Zq|KEY\d{4,}|sig(?:=|%3D)[\w%+/]{20}")
#: writers by role: those named `...-own` have keys by policy, the others the catalog's
_LINES, _ENDLESS = ("lines-0-own", "lines-1"), ("source-0-own", "source-1", "keyed-0")
_DAEMONS = ("bookkeeper", "reaper")
#: seconds
_LONG_LIFE, _LONG_RUN, _LONG_ON_SPARK = 30, 120, 600
_COMPACTED = ("rewrites committed",)


@dataclass
class World:
    """Processes on a governed lake on `ground`; files in `place`."""

    ground: Ground
    place: Path
    seed: int
    #: seconds between two kills, on the average
    pause: float = 5
    spark: bool = False
    on_spark: OnSpark | None = None
    kills: Counter[str] = field(default_factory=Counter)
    #: files of `writer lines`, by role
    files: dict[str, list[Path]] = field(default_factory=lambda: {role: [] for role in _LINES})

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        warehouse = {"py-catalog-impl": STORAGE, "warehouse": f"{self.ground.lake}/w"}
        self.inner, self.folder = Catalog("inner", {**warehouse, **self.ground.own}), f"{self.ground.queue}/events"
        (self.place / "journal").mkdir()

    def run(self, catalog: str, seconds: float) -> None:
        """Everything, for so many seconds, until all rows are in."""
        queue = self._configured(catalog)
        queue.init()
        if self.spark:
            self._make_output()
            self.on_spark = OnSpark(queue.config, self.place, self.random)
        with Crew(self._commands(queue), self.place, grace=60, forked=False) as crew:
            for role in crew.commands:
                crew.start(role)
            if self.on_spark:
                self.on_spark.begin(crew, time.monotonic())
            over = time.monotonic() + seconds
            while time.monotonic() < over:
                self._check(crew)
                for role in self.files:
                    self._write(crew, role)
                time.sleep(self.pause * (0.5 + self.random.random()))
                self._kill(crew)
            self._settle(crew, queue)
        queue.run("bookkeeper", "fold", "--table", "state")

    def _make_output(self) -> None:
        """The table that the stream writes."""
        catalog = open_catalog(self.inner)
        optional: list[dict[str, Any]] = [{**column, "required": False} for column in EVENTS]
        catalog.create_table(OUTPUT, schema_of(optional))

    def _configured(self, catalog: str) -> Queue:
        """A file for the daemons and the consumer, one for governed writers, one for writers with keys of their own."""
        rest = {"name": "lake", "type": "rest", "uri": catalog, "warehouse": "lake", **self.ground.governed}
        events = {"identifier": _EVENTS, "folder": self.folder}
        state = {"identifier": _STATE, "credentials": "catalog"}
        written(
            self.place / "governed.toml",
            {"catalog": rest, "tables.events": {**events, "credentials": "catalog"}, "tables.state": state},
        )
        policy = {"storage": self.ground.policy, "tables.events": {"folder": self.folder}}
        written(self.place / "own.toml", policy)
        every = "30s" if self.spark else "1s"  # or nothing is left for Spark to compact
        reaper = {"every": "2s", "older-than": "1s", "retain-last": 1, "metadata-keep": "1s"}
        tables: dict[str, dict[str, Any]] = {
            "tables__events": {**events, "roll-after": "1s", "schema": EVENTS, "partition-by": ["day(timestamp)"]},
            "tables__events__compaction": {"engine": "own", "fan-in": 4, "quiet": "2s", "every": every},
            "tables__state": {**state, "schema": STATE, "partition-by": [], "key": ["id"], "roll-after": "1s"},
            "tables__state__fold": {"files": 4, "after": "1s"},
        }
        return queue_with(rest, self.ground.queue, self.place, reaper=reaper, **tables)

    def _commands(self, queue: Queue) -> dict[str, list[str]]:
        """Of all that run without an end."""
        python = [sys.executable, "-m"]
        found = {name: program(name, queue.config) for name in _DAEMONS}
        found[COPY] = [*python, "tests.soak.roles", COPY, str(queue.config), str(self.place / "copy.db")]
        for role in _ENDLESS:
            words = [role, self._config(role), str(self.place), str(self.seed), "0.3"]
            found[role] = [*python, "tests.soak.roles", *words]
        return found

    def _config(self, role: str) -> str:
        return str(self.place / ("own.toml" if role.endswith("-own") else "governed.toml"))

    def _check(self, crew: Crew) -> None:
        """Only `writer lines` ends by itself, and then it has loaded its files."""
        for role, code in crew.ended().items():
            said = crew.log(role).read_text("utf-8", "replace")[-3000:]
            may = role in self.files and code == 0
            assert may or (self.on_spark and self.on_spark.ended(role, code)), (role, code, said)

    def _write(self, crew: Crew, role: str) -> None:
        """The writer, with one more file to load, unless it still works."""
        if role in crew.running:
            return
        files = self.files[role]
        files.append(self.place / f"{role}-{len(files):05d}.ndjson")
        numbers = range((len(files) - 1) * _ROWS, len(files) * _ROWS)
        row = {"timestamp": "2026-01-31T12:00:00Z", "writer": role, "value": "v"}
        files[-1].write_text("".join(f"{json.dumps({**row, 'number': number})}\n" for number in numbers))
        crew.start(role, self._lines(role))

    def _lines(self, role: str) -> list[str]:
        words = ["lines", "--config", self._config(role), "--table", "events", "--name", role, "--quiet"]
        return [sys.executable, "-m", "writers", *words, "--log-level", "debug", *map(str, self.files[role])]

    def _kill(self, crew: Crew) -> None:
        role = self.random.choice([role for role in crew.running if role not in ROLES])
        crew.kill(role)
        self.kills[role] += 1
        if role not in self.files:
            crew.start(role)
        if self.on_spark:
            self.kills.update(self.on_spark.go_on(crew, time.monotonic()))

    def _settle(self, crew: Crew, queue: Queue) -> None:
        for role in _ENDLESS:
            code = crew.stop(role)
            assert code == 0, (role, code, crew.log(role).read_text("utf-8", "replace")[-3000:])
        for role in self.files:
            if role in crew.running:
                crew.kill(role)
            crew.start(role, self._lines(role))
            assert crew.wait(role) == 0, crew.log(role).read_text("utf-8", "replace")[-3000:]
        state = load_table(open_catalog(self.inner), _STATE).metadata.location
        folders = [Folder(open_store(url, self.inner.properties)) for url in (self.folder, f"{state}/_bookkeeper")]
        crew.until(lambda: not any(folder.pending() for folder in folders))
        crew.kill(COPY)
        crew.start(COPY, [*crew.commands[COPY], "once"])
        assert crew.wait(COPY) == 0, crew.log(COPY).read_text("utf-8", "replace")[-3000:]
        if self.on_spark:
            self.on_spark.settle(crew)

    def account(self, seconds: float) -> Account:
        """What became of all rows, and what the logs say was done in so many seconds."""
        done, catalog = Account(), open_catalog(self.inner)
        writers = {role: published(self.place / "journal" / role) for role in _ENDLESS if role.startswith("source")}
        for role, files in self.files.items():
            writers[role] = Published(sure=dict.fromkeys(range(len(files) * _ROWS), 0))
        done.live(read(load_table(catalog, _EVENTS)), writers, kept=0, gone=-1)
        copy = copied(self.place / "copy.db")
        done.copies(COPY, copy, writers)
        if self.on_spark:
            output = read(load_table(catalog, OUTPUT))
            done.copies(SPARK, output, writers)
            done.same_outputs(copy, output)
            for what, number in self.on_spark.counts():
                (done.some if isinstance(number, int) and seconds >= _LONG_ON_SPARK else done.count)(what, number)
        found = load_table(catalog, _STATE).scan(selected_fields=("id", "value")).to_arrow()
        rows = zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True)
        done.state("state", rows, replayed(self.place, self.seed))
        logs = "".join((self.place / f"{role}.log").read_text("utf-8", "replace") for role in _DAEMONS)
        work = [*((what, text) for what, (_, text) in WORK.items() if "retention" not in what), 2 * _COMPACTED]
        for what, text in work:
            (done.some if seconds >= _LONG_RUN else done.count)(what, logs.count(f'"{text}"'))
        return done

    def shown(self) -> Iterator[str]:
        """Where a secret of the catalog's stands."""
        for path in self.place.rglob("*"):
            if path.is_file() and _SECRET.search(path.read_bytes()):
                yield path.name
        for url in (self.ground.lake, self.ground.queue):
            stored = content(open_store(url, self.inner.properties))
            yield from (key for key, data in stored.items() if _SECRET.search(data))


def played(
    place: Path, seconds: float, life: float, pause: float, seed: int, kind: str = "s3", spark: bool = False
) -> Account:
    """
    The account of a whole run; raises AssertionError where a program ends that should not.
    """
    # Java renews keys only where it can ask for them alone.
    with GROUNDS[kind](life, lists_credentials=spark) as ground:
        world, desk = World(ground, place, seed, pause, spark), ground.desk
        with catalog_over(lambda: open_catalog(world.inner, create=True), desk) as first:
            began = time.monotonic()
            world.run(first.uri, seconds)
            minutes = (time.monotonic() - began) / 60
            asked = Counter(_kind(request) for request in first.seen)
        done = world.account(seconds)
        done.none("secrets in files and logs", world.shown())
    done.count("kills", dict(world.kills))
    done.count("keys handed out, and used", (len(desk.keys), sum(made.uses > 0 for made in desk.keys.values())))
    done.count("requests to the catalog a minute", {what: round(count / minutes, 1) for what, count in asked.items()})
    done.count("requests to the storage let through", len(desk.used))
    # On a busy machine a request may be under way for as long as such keys live.
    if life < _LONG_LIFE:
        done.count("requests with keys that had ended", len(desk.expired))
    else:
        done.none("requests with keys that had ended", desk.expired)
    done.count("refused", Counter(text.partition(" ")[0] for text in desk.refused))
    return done


def _kind(request: Request) -> str:
    if request.path.startswith("/v1/config"):
        return "config" + kind_of(request.headers)
    last = request.path.partition("?")[0].rpartition("/")[2]
    kind = {"credentials": "keys alone", "metrics": "metrics"}.get(last)
    return (kind or {"GET": "loads", "POST": "commits"}.get(request.method, request.method)) + kind_of(request.headers)


def main() -> None:
    """Exits 1 where a row is missing or double, a secret is shown, or keys that live for long were used too late."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=120, help="how long (default: %(default)s)")
    options.add_argument("--life", type=float, default=6, help="of keys, in seconds (default: %(default)s)")
    options.add_argument("--pause", type=float, default=5, help="seconds between two kills (default: %(default)s)")
    options.add_argument("--seed", type=int, default=os.getpid())
    options.add_argument("--keep", type=Path, help="an empty folder for configuration, logs and outputs, which stay")
    options.add_argument("--spark", action="store_true", help="with a stream and compactions on Spark")
    options.add_argument("--azure", action="store_true", help="on Azurite, with SAS tokens; without Spark")
    given = options.parse_args()
    if given.azure and given.spark:
        options.error("Spark's stream is tried on S3 alone")
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        place, kind = given.keep or Path(scratch), "azure" if given.azure else "s3"
        done = played(place, given.seconds, given.life, given.pause, given.seed, kind, given.spark)
    print(*done.lines, *(f"WRONG {text}" for text in done.wrong), sep="\n")
    sys.exit(bool(done.wrong))


if __name__ == "__main__":
    main()
