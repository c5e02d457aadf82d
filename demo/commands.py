"""
The command lines of the demo's processes, and the configuration they share.
"""

import json
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from demo.evidence import consumed_folder
from demo.folder import DemoPaths

TABLE = "events"
#: where the bookkeeper's page is by default
LISTEN = "127.0.0.1:9464"
_EMBEDDED = Path(__file__).resolve().parent.parent / "config" / "local.toml"
ROWS, VALUE_BYTES, RETAIN_LAST = 300, 1700, 10


def expire_after(chaos: bool, starting: float) -> int:
    """
    Seconds after which the reaper may expire a snapshot, where Spark took `starting` seconds to start.

    So short that a minute shows it; a slow machine gets more, and a consumer that chaos killed must be back and
    have caught up before what it reads next is gone.
    """
    return max(30, round(3 * starting)) if chaos else max(15, round(starting))


def write_config(paths: DemoPaths, older: int) -> None:
    """
    The embedded default, with snapshots expired after so many seconds and retention to match.
    """
    settings = tomllib.loads(_EMBEDDED.read_text("utf-8"))
    settings["reaper"] |= {
        "every": "5s",
        "older-than": f"{older}s",
        "retain-last": RETAIN_LAST,
        "metadata-keep": "10s",
    }
    settings["tables"][TABLE]["retention"] = {"keep": "20s", "every": "2s", "brake": 1.0}
    # Retention bounds what may become one file: files of about a second here.
    settings["tables"][TABLE]["compaction"] = {"every": "1s", "fan-in": 4}
    paths.config.write_text("\n".join(["# config/local.toml, in a hurry.", *_toml(settings)]) + "\n")


def _toml(settings: Mapping[str, Any], section: str = "") -> Iterator[str]:
    if section:
        yield f"\n[{section}]"
    nested = {key: value for key, value in settings.items() if isinstance(value, dict)}
    # A JSON text, number or list of texts is TOML too.
    yield from (f"{key} = {json.dumps(value)}" for key, value in settings.items() if key not in nested)
    for key, value in nested.items():
        yield from _toml(value, f"{section}.{key}".strip("."))


def _script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def init(paths: DemoPaths) -> list[str]:
    """
    Makes the table and its txlog folder.
    """
    return [_script("bookkeeper"), "init", "--config", str(paths.config)]


def free_address(wanted: str) -> str:
    """
    Where the page can be served: at the wanted address of this machine, or another port when that is taken.
    """
    for port in (int(wanted.rpartition(":")[2] or 0), 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as found:
                return f"127.0.0.1:{found.getsockname()[1]}"
        except OSError:
            continue
    return ""


def bookkeeper(paths: DemoPaths, listen: str = "") -> list[str]:
    """
    The one that commits; its page is at `listen`.
    """
    options = ["--log-format", "json", "--listen", listen]
    return [_script("bookkeeper"), "run", "--config", str(paths.config), *options]


def reaper(paths: DemoPaths) -> list[str]:
    """
    The one that expires and deletes.
    """
    return [_script("reaper"), "run", "--config", str(paths.config), "--log-format", "json"]


def ready(paths: DemoPaths) -> Path:
    """
    The file that the consumer makes when its stream runs.
    """
    return paths.root / "consumer-ready"


def consumer(paths: DemoPaths) -> list[str]:
    """
    The Spark stream.
    """
    words = {"config": paths.config, "checkpoint": paths.checkpoint, "keep": consumed_folder(paths.evidence)}
    return [sys.executable, "-m", "demo.consumer", *_options(**words, ready=ready(paths))]


def writer(paths: DemoPaths, folder: str, name: str, run: int, seconds: float) -> list[str]:
    """
    Run number `run` of a writer; each keeps a close log of its own, for a kill may leave half a line.
    """
    pause = 800 + 100 * (int(name.rpartition("-")[2]) % 5)
    size = _options(records=ROWS, value_bytes=VALUE_BYTES, pause=f"{pause}ms", seconds=f"{seconds:.0f}")
    log = _options(close_log=close_logs(paths) / f"{name}.{run}.jsonl")
    return [_script("writer"), "generate", *_options(folder=folder, name=name), *size, *log]


def close_logs(paths: DemoPaths) -> Path:
    """
    Where the writers' close logs lie.
    """
    return paths.evidence / "close-logs"


def _options(**values: object) -> list[str]:
    return [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]
