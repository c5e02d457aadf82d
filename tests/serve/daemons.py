"""
Real daemons on the tables of one catalog: started, asked what they say, killed.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.lake import Lake, Writes


class Tables:
    """Tables of one catalog, each with a writer, and the configuration of a daemon."""

    def __init__(self, root: Path, *names: str) -> None:
        self.root = root
        self.lakes = {name: Lake(root, name=name, identifier=f"demo.{name}") for name in names}
        self.writers = {name: Writes(lake) for name, lake in self.lakes.items()}

    def configure(self, file: str, *names: str, more: str = "", **daemon: str) -> Path:
        """A configuration file with these tables, all of them when none is named."""
        lake = next(iter(self.lakes.values()))
        catalog = {"name": "lake", **lake.catalog_settings.properties}
        chosen = {name: {"identifier": f"demo.{name}"} for name in names or self.lakes}
        own = {"every": "20ms", "stop-patience": "1s", "listen": ""}
        own |= {key.replace("_", "-"): text for key, text in daemon.items()}
        sections = {"catalog": catalog, "bookkeeper": own, **{f"tables.{name}": keys for name, keys in chosen.items()}}
        text = "".join(f"[{name}]\n{_lines(keys)}\n" for name, keys in sections.items()) + more
        path = self.root / file
        path.write_text(text)
        return path

    def publish(self, name: str, key: str) -> None:
        lake = self.lakes[name]
        lake.clock.now = datetime.now(UTC)
        self.writers[name].publish(key)


def _lines(keys: dict[str, str]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


class Said:
    """What several daemons say, in the order in which they said it: whose line, and the line."""

    def __init__(self) -> None:
        self.lines: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()

    def next(self) -> tuple[str, dict[str, Any]]:
        return self.lines.get(timeout=120)

    def until(self, **wanted: Any) -> dict[str, Any]:
        """The next line that says this."""
        while True:
            said = self.next()[1]
            if said.items() >= wanted.items():
                return said


class Daemon:
    """`bookkeeper run` as a process; what it says goes to `said` under its name."""

    def __init__(self, config: Path, said: Said, name: str = "") -> None:
        words = [sys.executable, "-m", "bookkeeper", "run", "--config", str(config), "--log-format", "json"]
        self.name, self.said = name, said
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.lines.put((self.name, json.loads(line) if line.startswith("{") else {"message": line}))
        self.said.lines.put((self.name, {"action": "ended"}))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """However it is doing."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
