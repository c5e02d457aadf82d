"""
`bookkeeper load`: from one file of data to a table that any Iceberg reader reads.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bookkeeper.cli.columns import load_words, plan_columns, short_name
from bookkeeper.cli.context import utc_now
from bookkeeper.cli.run import code_of
from bookkeeper.cli.setup import check_not_lost, make
from bookkeeper.console import logs
from bookkeeper.console.errors import Command
from bookkeeper.console.options import config_option, delimiter, json_option
from bookkeeper.console.output import say, show_record
from bookkeeper.errors import ConfigInvalid
from bookkeeper.stores.locations import local_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from bookkeeper.config.settings import Settings
    from bookkeeper.console.signals import StopSignal

_NEW_CONFIG = """\
# Made by `bookkeeper load`. ${HERE} is the folder of this file. Every key: docs/configure.md
[catalog]
name = "lake"
type = "sql"
uri = "sqlite:///${HERE}/lake/catalog.db"
warehouse = "file://${HERE}/lake"
"""
_NAMESPACE = "demo"
_TICK_SECONDS = 1.0


@click.command(cls=Command, short_help="Load a FILE: configuration, table, rows, commit.")
@click.argument("file", metavar="FILE", type=click.Path())
@config_option
@click.option("--table", metavar="NAME", help="A [tables.NAME] section, made where there is none; default: by FILE.")
@click.option("--name", metavar="WRITER", help="The writer that keeps how far FILE is loaded; default: by FILE.")
@click.option("--null", "nulls", metavar="TEXT", multiple=True, help="A CSV field that is null; repeatable.")
@click.option("--delimiter", callback=delimiter, help="Between two CSV fields; default: as `writer lines`.")
@json_option
@click.pass_context
def load(
    context: click.Context,
    file: str,
    config: str | None,
    table: str | None,
    name: str | None,
    nulls: tuple[str, ...],
    delimiter: str | None,
    as_json: bool,
) -> None:
    """
    Load one file (CSV, NDJSON, Parquet or Arrow) and commit it: from data to a table in one command.

    It makes what is missing: the configuration, with an SQLite catalog and the lake beside it; a [tables.NAME] section;
    the table, as `init --like FILE`. Then it loads as `writer lines`, and commits as `once`.

    Safe to run again, also after kill -9: each row is loaded once. Of a file that has grown the new rows are
    loaded; one that was replaced or moved is refused, for its rows may be in the table: load it with another --name.

    A line that is no row goes to WRITER.bad.ndjson with its reason, and the exit code stays 0; it is 1 when no line is
    a row.

    \b
    Example:
      bookkeeper load prices.csv --null NA --delimiter ';'
      bookkeeper load july.ndjson --table events
    """
    from bookkeeper.console.signals import StopSignal

    stop = StopSignal.on_signals()
    logs.set_up("human", "warning")
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.commands.infer.like import infer

    if not os.path.isfile(file):
        raise ConfigInvalid(f"{file} is no file", hint="Give a file of data: CSV, NDJSON, Parquet or Arrow.")
    infer(file, nulls, delimiter)  # a file that is no table leaves nothing behind
    named = table or _table_name(file)
    settings, where = _configured(config, named)
    plan = plan_columns(settings.tables[named], None, file, nulls, delimiter)
    check_not_lost(settings)
    catalog = open_catalog(settings.catalog, create=True)
    made = make(catalog, plan, file)
    before = _rows_of(catalog, made.table)
    words = load_words(plan, file, made.folder, str(where), name)
    tick = _Ticker(settings, named)
    code = _run_writer([*words[1:-1], "--", words[-1]], stop, tick)
    while tick():
        pass
    code = code or tick.code
    rows, location = _rows_of(catalog, made.table), str(catalog.load_table(made.table).location())
    record = {"table": named, "identifier": made.table, "config": str(where), "location": location}
    show_record({**record, "rows_added": rows - before, "rows": rows}, as_json)
    if tick.code:
        say(f"{named}: not committed yet: {tick.trouble}")
    if not code and not stop.requested:
        _say_next(named, rows - before, file, location, config, tick.standby)
    context.exit(code)


class _Ticker:
    """One tick of one table at each call; True where it committed. `code` is the exit code of the last one."""

    def __init__(self, settings: "Settings", table: str) -> None:
        self._settings, self._table = settings, settings.tables[table]
        self.code, self.trouble, self.standby = 0, "", False

    def __call__(self) -> bool:
        from bookkeeper.serve.open import opener
        from bookkeeper.serve.tables import once, slots_of

        daemon = self._settings.bookkeeper
        slots = slots_of(self._settings, [self._table], opener(daemon, utc_now))
        (done,) = once(slots, daemon, utc_now)
        self.code, self.trouble, self.standby = code_of(slots[0]), slots[0].trouble, slots[0].standby
        return done is not None and done.commit is not None


def _configured(config: str | None, table: str) -> "tuple[Settings, Path]":
    """
    The settings, with a section for the table, and their file; both are made where they are missing.

    The file is put in place whole: a crash leaves the old one, or none, and perhaps a temporary file beside it.
    """
    from bookkeeper.config.load import parse

    path = Path(config or os.environ.get("BOOKKEEPER_CONFIG") or "bookkeeper.toml")
    try:
        old = path.read_text("utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigInvalid(f"{path} cannot be read: {exc}") from exc
    text = _NEW_CONFIG if old is None else old
    environ = {**os.environ, "HERE": str(path.resolve().parent)}
    settings = parse(text, environ, source=str(path))
    if table in settings.tables:
        return settings, path
    text = f"{text.rstrip()}\n\n{_section(text, table)}"
    settings = parse(text, environ, source=str(path))
    _put(path.resolve(), text, old)
    say(f"{path}: made, with [tables.{table}]" if old is None else f"{path}: [tables.{table}] added")
    return settings, path


def _section(text: str, table: str) -> str:
    # Where the warehouse is known the place is said: a writer cannot ask the catalog.
    warehouse = tomllib.loads(text).get("catalog", {}).get("warehouse")
    lines = [f"[tables.{table}]", f'identifier = "{_NAMESPACE}.{table}"']
    if isinstance(warehouse, str) and "://" in warehouse:
        location = f"{warehouse.rstrip('/')}/{_NAMESPACE}/{table}"
        lines.append(f"location = {json.dumps(location)}")
    return "\n".join(lines) + "\n"


def _put(path: Path, text: str, old: str | None) -> None:
    try:
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644 if old is None else path.stat().st_mode & 0o777)
            if old is None:
                os.link(made, path)  # never over a file that another one has made meanwhile
            else:
                os.rename(made, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(made)
    except OSError as exc:
        hint = "Run it in a folder that may be written, or write the configuration by hand: docs/configure.md."
        raise ConfigInvalid(f"{path} cannot be written: {exc.strerror}", hint=hint) from exc


def _table_name(file: str) -> str:
    name = short_name(file).replace("-", "_")
    return f"t_{name}" if name[0].isdigit() else name


def _rows_of(catalog: "Catalog", identifier: str) -> int:
    from bookkeeper.history.main_history import counted

    return counted(catalog.load_table(identifier).current_snapshot(), "total-records")


def _run_writer(words: list[str], stop: "StopSignal", tick: _Ticker) -> int:
    """
    Run `writer lines` in a process of its own, committing meanwhile, for it waits while too much is pending.

    Returns its exit code. A signal that this process gets is passed on: it publishes what it has read, and ends.
    """
    # -P: a folder called `writers` that happens to be here is not ours.
    child = subprocess.Popen([sys.executable, "-P", "-m", "writers", *words])
    try:
        while (code := _ended(child)) is None:
            if stop.requested:
                child.terminate()
            tick()
        # One that was stopped while it started has taken no row yet.
        return 0 if stop.requested and code == -signal.SIGTERM else code
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def _ended(child: "subprocess.Popen[bytes]") -> int | None:
    try:
        return child.wait(_TICK_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _say_next(name: str, added: int, file: str, location: str, config: str | None, standby: bool) -> None:
    if standby:
        say(f"{name}: another bookkeeper is at work: it commits what is not in the table yet")
    elif not added:
        say(f"{name}: nothing to load, all rows of {file} were in the table already")
    path = local_path(location)
    if path:
        say(f"DuckDB: SET unsafe_enable_version_guessing = true; FROM iceberg_scan('{os.path.relpath(path)}')")
    say("next:")
    option = ["--config", config] if config else []
    for words, why in (
        (["bookkeeper", "tail", name, *option, "--from", "beginning", "--count", "5"], "its first rows"),
        (["bookkeeper", "load", *option, "--table", name, "FILE"], "more rows from another file"),
        (["bookkeeper", "run", *option], "commits every second what writers publish"),
    ):
        say(f"  {shlex.join(words):<60} {why}")


COMMANDS = (load,)
