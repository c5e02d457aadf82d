"""
The command lines of the demo's processes, and the configuration they share.
"""

import sys
from pathlib import Path

from demo.evidence import consumed_folder
from demo.place import Place

TABLE = "events"
ROWS, VALUE_BYTES = 300, 1700

_CONFIG = """\
# Written by the demo. The embedded default, and retention so short that a minute shows it.
[catalog]
name = "lake"
type = "sql"
uri = "sqlite:///${{HERE}}/catalog.db"
warehouse = "file://${{HERE}}/warehouse"

[reaper]
every = "5s"
older-than = "{older}s"
retain-last = 10
metadata-keep = "10s"

[tables.{table}]
retention.keep = "10s"
retention.every = "2s"
retention.brake = 1.0
"""


def expire_after(chaos: bool, starting: float) -> int:
    """
    Seconds after which the reaper may expire a snapshot, where Spark took `starting` seconds to start.

    So short that a minute shows it; a slow machine gets more, and a consumer that chaos killed must be back and
    have caught up before what it reads next is gone.
    """
    return max(30, round(3 * starting)) if chaos else max(15, round(starting))


def write_config(place: Place, older: int) -> None:
    """
    The configuration of this run, with snapshots expired after so many seconds.
    """
    place.config.write_text(_CONFIG.format(table=TABLE, older=older))


def _script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def init(place: Place) -> list[str]:
    """
    Makes the table and its txlog folder.
    """
    return [_script("bookkeeper"), "init", "--config", str(place.config)]


def bookkeeper(place: Place) -> list[str]:
    """
    The one that commits.
    """
    return [_script("bookkeeper"), "run", "--config", str(place.config), "--log-format", "json"]


def reaper(place: Place) -> list[str]:
    """
    The one that expires and deletes.
    """
    return [_script("reaper"), "run", "--config", str(place.config), "--log-format", "json"]


def ready(place: Place) -> Path:
    """
    The file that the consumer makes when its stream runs.
    """
    return place.root / "consumer-ready"


def consumer(place: Place) -> list[str]:
    """
    The Spark stream.
    """
    words = {"config": place.config, "checkpoint": place.checkpoint, "keep": consumed_folder(place.evidence)}
    return [sys.executable, "-m", "demo.consumer", *_options(**words, ready=ready(place))]


def writer(place: Place, folder: str, name: str, run: int, seconds: float) -> list[str]:
    """
    Run number `run` of a writer; each keeps a close log of its own, for a kill may leave half a line.
    """
    return [
        _script("writer"),
        "generate",
        *_options(
            folder=folder, name=name, seconds=f"{seconds:.0f}", records=ROWS, value_bytes=VALUE_BYTES, pause="1s"
        ),
        *_options(close_log=close_logs(place) / f"{name}.{run}.jsonl"),
    ]


def close_logs(place: Place) -> Path:
    """
    Where the writers' close logs lie.
    """
    return place.evidence / "close-logs"


def _options(**values: object) -> list[str]:
    return [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]
