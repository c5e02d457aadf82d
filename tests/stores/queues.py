"""
A queue on an object store as people have it: a configuration file, and the commands that take it.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from bookkeeper.catalogs.open import load_table, open_catalog
from bookkeeper.cli import main as bookkeeper
from bookkeeper.config.load import load
from bookkeeper.config.settings import Settings
from reaper.cli import main as reaper
from tests.servers.shared import place, wanted
from tests.support.logs import logging_put_back
from writers.cli import main as writer

PROGRAMS: dict[str, click.Command] = {"bookkeeper": bookkeeper, "writer": writer, "reaper": reaper}


@dataclass
class Queue:
    """One table with its folder, known by its configuration file only."""

    config: Path
    url: str

    @property
    def settings(self) -> Settings:
        """What the file says."""
        return load(str(self.config), {})

    def run(self, program: str, *arguments: str, code: int = 0) -> str:
        """What a command prints; fails when it ends with another code."""
        with logging_put_back():
            done = CliRunner().invoke(PROGRAMS[program], [*arguments, "--config", str(self.config)])
        assert done.exit_code == code, (done.output, done.exception)
        return done.stdout

    def asked(self, *arguments: str, code: int = 0) -> Any:
        """What a command of the bookkeeper says with --json."""
        return json.loads(self.run("bookkeeper", *arguments, "--json", code=code))

    def generate(self, name: str, files: int, records: int = 50) -> set[str]:
        """Publishes so many files; the keys of their rows."""
        self.run(
            "writer", "generate", "--name", name, "--files", str(files), "--records", str(records),
            "--value-bytes", "10", "--run", "r", "--quiet", "--folder", self.folder,
        )  # fmt: skip
        return {f"{name}/r/{number:012d}" for number in range(files * records)}

    @property
    def folder(self) -> str:
        """Where writers publish."""
        return f"{self.url}/queue"

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """`bookkeeper ARGUMENTS` as a process of its own."""
        command = [sys.executable, "-m", "bookkeeper", *arguments, "--config", str(self.config)]
        log = self.config.with_name("process.log").open("ab")
        with log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def keys(self) -> Counter[str]:
        """How often a reader sees each row's key."""
        catalog = open_catalog(self.settings.catalog)
        try:
            rows = load_table(catalog, "demo.events").scan(selected_fields=("key",)).to_arrow()
        finally:
            catalog.close()
        return Counter(rows["key"].to_pylist())


def new_queue(kind: str, path: Path, catalog: dict[str, str] | None = None, folder_on: str | None = None) -> Queue:
    """
    An empty queue on the shared server of this kind, its catalog an SQLite file in `path` unless said otherwise.

    `folder_on` is the kind of server that its folder is on, if that is another one.
    """
    server, table = wanted(kind), place(kind)
    folder, url = (wanted(folder_on).properties, place(folder_on)) if folder_on else ({}, table)
    sqlite = {"type": "sql", "uri": f"sqlite:///{path}/catalog/catalog.db"}
    keys = {**folder, **server.properties, "warehouse": f"{table}/warehouse", **(catalog or sqlite)}
    return queue_with(keys, url, path)


def queue_with(keys: Mapping[str, str], url: str, path: Path) -> Queue:
    """
    A queue whose folder is at `url`; `keys` are those of its catalog.
    """
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in keys.items()]
    config = path / "bookkeeper.toml"
    config.write_text(
        "[catalog]\n" + "\n".join(lines) + '\n[bookkeeper]\nevery = "200ms"\nlisten = ""\n'
        '[reaper]\nolder-than = "1s"\nretain-last = 1\nmetadata-keep = "1s"\n'
        f'[tables.events]\nidentifier = "demo.events"\nfolder = "{url}/queue"\n'
    )
    return Queue(config, url)
