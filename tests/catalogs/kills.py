"""
A bookkeeper, a reaper and writers on a catalog that hands out keys which live for seconds, each killed at random.

    python -m tests.catalogs.kills --seconds 180 --seed 7

In the end each row that was to be written is looked for in the table, and the storage says how often keys were used
that had ended.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.support.lake import written
from bookkeeper.catalogs.open import STORAGE, load_table, open_catalog
from bookkeeper.config.settings import Catalog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from tests.servers.catalog_over import catalog_over
from tests.servers.handing_out import Desk, StorageProxy
from tests.servers.objects import bucket, s3
from tests.servers.proxy import proxy
from tests.support.configured import Queue, program, queue_with
from tests.support.crew import Crew

_TABLE, _FOLDER = "demo.events", "s3://queue/events"
_ROWS = 200


class World:
    """Processes on a governed lake whose keys live for `life` seconds."""

    def __init__(self, storage: Any, place: Path, life: float, writers: int, seed: int) -> None:
        self.place, self.random, self.writers = place, Random(seed), writers
        self.desk = Desk(time, life)  # type: ignore[arg-type]  # the clock of this machine
        self.kills: Counter[str] = Counter()
        self.files: dict[str, list[Path]] = {f"writer{number}": [] for number in range(writers)}
        self.inner = Catalog(
            "inner", {"py-catalog-impl": STORAGE, "warehouse": f"{bucket(storage, 'lake')}/w", **storage.properties}
        )
        bucket(storage, "queue")

    def run(self, catalog: str, storage: str, seconds: float) -> Counter[str]:
        """Everything, for so many seconds, until all rows are in; how often each row is."""
        queue = self._configured(catalog, storage)
        queue.init()
        daemons = {name: program(name, queue.config) for name in ("bookkeeper", "reaper")}
        with Crew(daemons, self.place) as crew:
            for role in daemons:
                crew.start(role)
            over = time.monotonic() + seconds
            while time.monotonic() < over:
                for role in self.files:
                    self._write(crew, role)
                time.sleep(self.random.random() * 6)
                self._kill(crew)
            self._settle(crew)
        rows = load_table(open_catalog(self.inner), _TABLE).scan(selected_fields=("key",)).to_arrow()
        return Counter(rows["key"].to_pylist())

    def _configured(self, catalog: str, storage: str) -> Queue:
        reach = {"s3.endpoint": storage, "s3.region": "us-east-1"}
        own = {"access-key-id": "test", "secret-access-key": "testtest"}
        keys = {f"s3.bucket.queue.{key}": value for key, value in own.items()}
        rest = {"name": "lake", "type": "rest", "uri": catalog, "warehouse": "s3://lake/w", **reach, **keys}
        # A writer opens no catalog: its keys are policy's.
        policy = {**reach, **{f"s3.{key}": value for key, value in own.items()}}
        written(self.place / "writer.toml", {"storage": policy, "tables.events": {"folder": _FOLDER}})
        reaper = {"every": "2s", "older-than": "1s", "retain-last": 1, "metadata-keep": "1s"}
        table = {"identifier": _TABLE, "folder": _FOLDER, "roll-after": "1s"}
        return queue_with(rest, "s3://queue", self.place, reaper=reaper, tables__events=table)

    def _write(self, crew: Crew, role: str) -> None:
        """The writer, with one more file to load, unless it still works."""
        if role in crew.running and role not in crew.ended():
            return
        files = self.files[role]
        files.append(self.place / f"{role}-{len(files):05d}.ndjson")
        keys = [f"{files[-1].stem}/{number}" for number in range(_ROWS)]
        rows = [json.dumps({"timestamp": "2026-01-31T12:00:00Z", "key": key}) for key in keys]
        files[-1].write_text("\n".join([*rows, ""]))
        crew.start(role, self._lines(role))

    def _lines(self, role: str) -> list[str]:
        words = ["lines", "--config", str(self.place / "writer.toml"), "--name", role, "--quiet"]
        return [sys.executable, "-m", "writers", *words, *map(str, self.files[role])]

    def _kill(self, crew: Crew) -> None:
        role = self.random.choice([*crew.running])
        crew.kill(role)
        self.kills[role.rstrip("0123456789")] += 1
        if role not in self.files:
            crew.start(role)

    def _settle(self, crew: Crew) -> None:
        for role in self.files:
            if role in crew.running:
                crew.kill(role)
            crew.start(role, self._lines(role))
            assert crew.wait(role) == 0, crew.log(role).read_text("utf-8", "replace")[-3000:]
        folder = Folder(open_store(_FOLDER, self.inner.properties))
        crew.until(lambda: not folder.pending())

    def expected(self) -> set[str]:
        """The keys of all rows."""
        stems = [file.stem for files in self.files.values() for file in files]
        return {f"{stem}/{number}" for stem in stems for number in range(_ROWS)}


def main() -> None:
    """Exits 1 where a row is missing or double, or keys were used that had ended."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=120, help="how long (default: %(default)s)")
    options.add_argument("--life", type=float, default=6, help="of keys, in seconds (default: %(default)s)")
    options.add_argument("--writers", type=int, default=2)
    options.add_argument("--seed", type=int, default=os.getpid())
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    with s3() as storage, tempfile.TemporaryDirectory() as place, proxy(storage.port, StorageProxy) as second:
        world = World(storage, Path(place), given.life, given.writers, given.seed)
        second.desk = world.desk  # type: ignore[attr-defined]
        with catalog_over(lambda: open_catalog(world.inner, create=True), world.desk) as first:
            rows = world.run(first.uri, second.uri, given.seconds)
        logs = b"".join(path.read_bytes() for path in Path(place).glob("*.log"))
    expected, desk = world.expected(), world.desk
    missing, double = expected - rows.keys(), sum(count - 1 for count in rows.values())
    shown = [text for text in desk.secrets() if text.encode() in logs]
    print(f"kills: {dict(world.kills)}")
    others = len(rows.keys() - expected)
    print(f"rows: {len(expected)} expected, {len(missing)} missing, {double} double, {others} others")
    print(f"keys: {len(desk.keys)} handed out, {sum(made.uses > 0 for made in desk.keys.values())} used")
    print(f"storage: {len(desk.used)} requests let through, {len(desk.expired)} with keys that had ended")
    print(f"refused: {Counter(text.partition(' ')[0] for text in desk.refused)}; secrets in logs: {len(shown)}")
    sys.exit(bool(missing or double or others or desk.expired or shown))


if __name__ == "__main__":
    main()
