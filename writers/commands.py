"""
What the commands of `writer` do once options are parsed.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema

from bookkeeper.console.options import load_settings, pick_table
from bookkeeper.console.output import say
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.core.folder import folder_url as configured_url
from bookkeeper.errors import ConfigInvalid, NotPossible
from writers.generate import Load, publish_file
from writers.lines import Loader, Side
from writers.values.records import Parse, csv_parser, ndjson_parser
from writers.writer import Writer

Clock = Callable[[], datetime]


def folder_url(folder: str | None, config: str | None, table: str | None, environ: Mapping[str, str]) -> str:
    """
    The txlog folder that the options name; raises ConfigInvalid.
    """
    if folder is not None:
        return folder if ":" in folder else os.path.abspath(folder)
    try:
        section = pick_table(load_settings(config, environ), table)
    except ConfigInvalid as exc:
        hint = f"Give --folder URL as `bookkeeper init` prints it. {exc.hint}".strip()
        raise ConfigInvalid(f"no txlog folder is given, and {exc}", hint=hint) from exc
    if section.folder is None and section.location is None:
        raise ConfigInvalid(
            f"tables.{section.name} names neither folder nor location, and a writer cannot ask the catalog",
            hint="Give --folder URL as `bookkeeper init` prints it, or set `folder` in the configuration.",
        )
    return str(section.folder) if section.location is None else configured_url(section, section.location)


def storage_options(folder: str | None, config: str | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """
    How the storage is reached: what the configuration says; none is needed where the folder is given by itself.
    """
    try:
        storage: Mapping[str, str] = load_settings(config, environ).storage
    except ConfigInvalid:
        if folder is None or config is not None:
            raise
        return {}
    return storage


@dataclass(frozen=True, slots=True)
class Schedule:
    """When `writer generate` ends, how long it rests between two files, and where it takes notes."""

    files: int | None
    seconds: float | None
    pause: timedelta
    close_log: Path | None

    def over(self, number: int, elapsed: float) -> bool:
        """Whether it is enough."""
        return number == self.files or (self.seconds is not None and elapsed >= self.seconds)


def run_generate(
    writer: Writer, load: Load, schedule: Schedule, stop: StopSignal, progress: Progress, clock: Clock
) -> None:
    """
    Publish generated files until there are enough, time is up, or a stop is wished.
    """
    if schedule.close_log is not None:
        _prepare(schedule.close_log)
    began, number = clock(), 0
    while not (stop.requested or schedule.over(number, _elapsed(began, clock))):
        closed = publish_file(writer, load, number, clock)
        number += 1
        if schedule.close_log is not None:
            _append(schedule.close_log, closed)
        progress.tell(_so_far(load, number, _elapsed(began, clock)))
        stop.wait(schedule.pause.total_seconds())
    progress.close(_so_far(load, number, _elapsed(began, clock)))


def _elapsed(began: datetime, clock: Clock) -> float:
    return (clock() - began).total_seconds()


def _prepare(path: Path) -> None:
    """Before anything is published: notes that cannot be taken afterwards are no use."""
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as exc:
        hint = "Name a file in a folder that is there and may be written."
        raise NotPossible(f"--close-log {path} cannot be written: {exc.strerror}", hint=hint) from exc


def _append(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def _so_far(load: Load, files: int, seconds: float) -> dict[str, Any]:
    rows = files * load.records
    return {
        "txlogs": files,
        "rows": rows,
        "bytes": rows * load.value_bytes,
        "rows/s": round(rows / max(seconds, 0.001)),
    }


@dataclass(frozen=True, slots=True)
class Format:
    """How lines are read."""

    kind: str
    delimiter: str = ","
    base64_bytes: bool = False

    @classmethod
    def of(cls, kind: str | None, files: Sequence[str], delimiter: str, base64_bytes: bool) -> "Format":
        """The format that was asked for, or the one the files' names end in."""
        by_name = "csv" if files and all(name.lower().endswith(".csv") for name in files) else "ndjson"
        return cls(kind or by_name, delimiter, base64_bytes)

    def parser(self, schema: Schema, header: bytes, former: Mapping[str, int]) -> Parse:
        """A parser for the table's columns."""
        if self.kind == "csv":
            return csv_parser(schema, header, self.delimiter, self.base64_bytes, former)
        return ndjson_parser(schema, self.base64_bytes, former)


def run_lines(
    writer: Writer,
    files: Sequence[str],
    form: Format,
    bad: Path | None,
    stop: StopSignal,
    progress: Progress,
    clock: Clock,
) -> None:
    """
    Load the files, or stdin when there are none. Raises NotPossible when no line that was read is a row.
    """
    with Side(bad or Path(f"{writer.name}.bad.ndjson")) as side:
        loader = Loader(
            writer,
            form.parser,
            side,
            clock,
            header=form.kind == "csv",
            stopped=lambda: stop.requested,
            told=lambda loader: progress.tell(_loaded(loader)),
        )
        complete = loader.load_files(files) if files else loader.load_pipe(sys.stdin.fileno())
        progress.close(_loaded(loader))
    if side.count:
        say(f"{side.count} bad lines are in {side.path}, each with its reason")
    if not complete:
        say("stopped before the end; start it again with the same --name to continue")
    if side.count and not loader.rows:
        raise NotPossible(
            f"none of {side.count} lines is a row of this table",
            hint=f"{side.path} says why of each. Is --format right, and the table? Nothing was published.",
        )


def _loaded(loader: Loader) -> dict[str, Any]:
    return {"rows": loader.rows, "published": loader.published, "bad lines": loader.side.count}
