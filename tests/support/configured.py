"""
The lake of real processes, as people have it: a configuration file, on any store and catalog, and the commands that
take it, in this process or in their own.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from benchmarks.support.lake import written
from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.cli import main as bookkeeper
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.load import load
from bookkeeper.config.settings import Settings
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.serve.open import open_folder
from reaper.cli import main as reaper
from tests.servers.shared import place, wanted
from tests.support.lake import Lake
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
        return str(self.settings.tables["events"].folder)

    def init(self) -> None:
        """Makes its tables, as `bookkeeper init` does."""
        catalog = open_catalog(self.settings.catalog, create=True)
        for table in self.settings.tables.values():
            initialise(catalog, table, schema_for(table))

    def table(self, name: str = "events") -> Any:
        """As pyiceberg loads it."""
        return load_table(open_catalog(self.settings.catalog), self.settings.tables[name].identifier)

    def txlogs(self, name: str = "events") -> Folder:
        """The table's txlog folder."""
        return open_folder(open_catalog(self.settings.catalog), self.settings.tables[name])

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


def queue_with(
    keys: Mapping[str, str],
    url: str,
    path: Path,
    file: str = "bookkeeper.toml",
    folder: str = "queue",
    **more: Mapping[str, Any],
) -> Queue:
    """
    A queue whose folder is at `url`; `keys` are those of its catalog, `more` sections of its file in `path`.
    """
    sections: dict[str, Mapping[str, Any]] = {
        "catalog": keys,
        "bookkeeper": {"every": "200ms", "listen": ""},
        "reaper": {"older-than": "1s", "retain-last": 1, "metadata-keep": "1s"},
        "tables.events": {"identifier": "demo.events", "folder": f"{url}/{folder}"},
    }
    return Queue(written(path / file, sections | _named(more)), url)


def configured(*lakes: Lake, file: str = "bookkeeper.toml", **sections: Mapping[str, Any]) -> Path:
    """
    A configuration file with these tables of one catalog, beside it, and further `sections`.

    No port of this machine is in it: another one's bookkeeper may answer there.
    """
    first, daemon = lakes[0], {"listen": "", **sections.pop("bookkeeper", {})}
    catalog = {"name": first.catalog_settings.name, **first.catalog_settings.properties}
    tables = {f"tables.{lake.settings.name}": {"identifier": lake.settings.identifier} for lake in lakes}
    return written(first.root / file, {"catalog": catalog, "bookkeeper": daemon, **tables, **_named(sections)})


def _named(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Sections by their names in TOML: `__` stands for a dot."""
    return {name.replace("__", "."): keys for name, keys in sections.items()}


def program(name: str, config: Path, *arguments: str) -> list[str]:
    """
    The words of `bookkeeper run`, or `reaper run`, that say in JSON what they do.
    """
    return [sys.executable, "-m", name, "run", "--config", str(config), "--log-format", "json", *arguments]
