"""
Visibility: from the writer's close of its data files to the committed snapshot, and to the row in Spark.

    python -m benchmarks.visibility

Real processes: writers, `bookkeeper run` polling every second and then with inotify, one Spark stream (trigger
200 ms). "Committed" is when the catalog showed it to a reader that looks every 5 ms.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.daemon import running
from benchmarks.support.harness import Chosen, alone, number, percentile
from benchmarks.support.lake import Lake, Watch, configured
from bookkeeper.contract.names import TxlogName

MODES = {"polling every 1 s": {"discover": "list"}, "inotify": {"discover": "notify"}}
ROWS, VALUE_BYTES, TRIGGER = 300, 1_700, "200ms"


@dataclass(frozen=True, slots=True)
class Size:
    """How many writers write for how long in each mode; whether Spark reads."""

    writers: int
    seconds: int
    spark: bool


SIZES = {"toy": Size(1, 1, False), "short": Size(3, 45, True), "big": Size(5, 180, True)}
STAGES = ("closed -> published", "closed -> committed", "committed -> Spark row", "closed -> Spark row")
COLUMNS = ("mode", *(f"{stage}, p50 / p99" for stage in STAGES), "txlogs", "commits")


@contextmanager
def consumer(lake: Lake) -> Iterator[Path]:
    """
    A Spark stream that writes down each key it sees, and when; the folder it does that in.
    """
    keep, ready = lake.root / "consumed", lake.root / "ready"
    options = {"config": lake.path, "checkpoint": lake.root / "checkpoint", "keep": keep, "ready": ready}
    given = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    with open(lake.root / "consumer.log", "wb") as log:
        words = [sys.executable, "-m", "demo.consumer", *given, "--trigger", TRIGGER]
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            while not ready.exists():
                assert process.poll() is None, (lake.root / "consumer.log").read_text()[-3000:]
                time.sleep(0.1)
            yield keep
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def generating(lake: Lake, name: str, **options: Any) -> "subprocess.Popen[bytes]":
    """
    A writer of generated rows, begun; it writes into `close_log` what `closes` reads.
    """
    given = {"folder": lake.folder.store.url, "name": name, "records": ROWS, "close-log": close_log(lake, name)}
    given |= {key.replace("_", "-"): value for key, value in options.items()}
    words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    script = str(Path(sys.executable).parent / "writer")
    return subprocess.Popen([script, "generate", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def close_log(lake: Lake, name: str) -> Path:
    """
    Where a writer says of each txlog when its data files were closed and when it was published.
    """
    return lake.root / f"close-{name}.jsonl"


def closes(lake: Lake, names: Iterable[str]) -> list[dict[str, Any]]:
    """
    What these writers' close logs say of each txlog.
    """
    return [json.loads(line) for name in names for line in close_log(lake, name).read_text().splitlines()]


def written(lake: Lake, size: Size, mode: int) -> list[dict[str, Any]]:
    """
    Lets the writers write, and gives what their close logs say of each txlog.
    """
    writers = {
        name: generating(lake, name, value_bytes=VALUE_BYTES, pause=f"{700 + 100 * index}ms", seconds=size.seconds)
        for index in range(size.writers)
        for name in [f"w{mode}-{index}"]
    }
    assert [writer.wait(size.seconds + 120) for writer in writers.values()] == [0] * size.writers
    return closes(lake, writers)


def drained(lake: Lake, seconds: float = 60) -> None:
    """
    Waits until nothing is pending.
    """
    deadline = time.monotonic() + seconds
    while lake.folder.pending() and time.monotonic() < deadline:
        time.sleep(0.1)


def spark_times(keep: Path | None, wanted: int, seconds: float = 60) -> dict[str, float]:
    """
    When each key came to Spark, ms; waits until as many have come.
    """
    found: dict[str, float] = {}
    deadline = time.monotonic() + seconds
    while keep is not None and len(found) < wanted and time.monotonic() < deadline:
        for path in keep.glob("*.json"):
            batch = json.loads(path.read_text())
            found |= dict.fromkeys(batch["keys"], batch["seen_ms"])
        time.sleep(0.2)
    return found


def measured(lake: Lake, size: Size, mode: int, keep: Path | None) -> tuple[list[str | None], int, int]:
    """
    p50 / p99 of each stage, txlogs and commits of one mode.
    """
    config = configured(lake.root, {}, list(MODES.values())[mode])
    before = len(lake.table().metadata.snapshots)
    with running(config, lake.root / f"bookkeeper-{mode}.log"), Watch(lake.root) as watch:
        # The first ticks load, compile and remember; a day has 86,400 others.
        written(lake, Size(1, min(3, size.seconds), False), 10 + mode)
        said = written(lake, size, mode)
        drained(lake)
        rows = spark_times(keep, sum(item["rows"] for item in said) if keep else 0)
    table = lake.table()
    at = watch.times(table)
    stages: list[list[float]] = [[], [], [], []]
    for item in said:
        committed, seen = at[item["name"]], rows.get(_key(item["name"], item["last"]))
        stages[0].append(item["published_ms"] - item["closed_ms"])
        stages[1].append(committed - item["closed_ms"])
        stages[2] += [seen - committed] if seen is not None else []
        stages[3] += [seen - item["closed_ms"]] if seen is not None else []
    return [_shown(stage) for stage in stages], len(said), len(table.metadata.snapshots) - before


def _key(name: str, row: int) -> str:
    found = TxlogName.parse(name)
    return f"{found.writer}/{found.incarnation}/{row:012d}"


def _shown(values: Sequence[float]) -> str | None:
    return " / ".join(number(percentile(values, share)) for share in (0.5, 0.99)) if values else None


def measure(chosen: Chosen) -> None:
    """
    One row per mode.
    """
    size = SIZES[chosen.size]
    title = f"Visibility, ms: {size.writers} writers, a txlog of {ROWS} rows each every 0.7-0.9 s"
    chosen.report.table("visibility", title, COLUMNS)
    with chosen.folder() as root:
        lake = Lake.at(root)
        if not size.spark:
            _modes(chosen, lake, size, None)
            return
        with consumer(lake) as keep:
            _modes(chosen, lake, size, keep)


def _modes(chosen: Chosen, lake: Lake, size: Size, keep: Path | None) -> None:
    for mode, name in enumerate(MODES):
        stages, txlogs, commits = measured(lake, size, mode, keep)
        chosen.report.row(name, *stages, txlogs, commits)


if __name__ == "__main__":
    alone(measure, __doc__)
