"""
The commands `writer generate` and `writer lines`, with their options parsed.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bookkeeper.config.dead_letters import letters_of
from bookkeeper.config.settings import Settings
from bookkeeper.console.options import load_settings, pick_table
from bookkeeper.console.output import say
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.contract.names import check_writer
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.contract.txlog_folder import folder_url as configured_url
from bookkeeper.errors import ConfigInvalid, Missing, NotPossible
from bookkeeper.stores.locations import absolute
from writers.generate import Load, publish_file
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader
from writers.publish.publisher import resume
from writers.reach import CATALOG, Reach
from writers.sources.source import STDIN
from writers.sources.stdin import ReplayedStdin
from writers.timing import Clock
from writers.writer import Writer


def folder_url(folder: str | None, config: str | None, table: str | None, environ: Mapping[str, str]) -> str:
    """
    The txlog folder that the options name; raises ConfigInvalid.
    """
    if folder is not None:
        return absolute(folder)
    try:
        settings = load_settings(config, environ)
        section = pick_table(settings, table)
    except ConfigInvalid as exc:
        hint = f"Give --folder URL as `bookkeeper init` prints it. {exc.hint}".strip()
        raise ConfigInvalid(f"no txlog folder is given, and {exc}", hint=hint) from exc
    if section.folder is None and section.location is None:
        if section.credentials == CATALOG:
            return configured_url(section, Reach(settings).location(section))
        raise ConfigInvalid(
            f"tables.{section.name} names neither folder nor location, and a writer cannot ask the catalog",
            hint="Give --folder URL as `bookkeeper init` prints it, or set `folder` in the configuration.",
        )
    return str(section.folder) if section.location is None else configured_url(section, section.location)


def letters_url(
    letters: str | None, folder: str | None, config: str | None, table: str | None, environ: Mapping[str, str]
) -> str | None:
    """
    The txlog folder of the table's dead letters, if the options name one; raises ConfigInvalid.
    """
    if letters is not None:
        return absolute(letters)
    if folder is not None:
        return None
    section = pick_table(load_settings(config, environ), table)
    return folder_url(None, config, letters_of(section).name, environ) if section.dead_letters else None


def served_folders(
    folders: Sequence[str], config: str | None, tables: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """
    By txlog folder the table's name; "" of a folder that is given itself. Without both, all tables that are configured.
    Raises ConfigInvalid.
    """
    given = {absolute(folder): "" for folder in folders}
    if not (folders or tables):
        tables = [*load_settings(config, environ).tables]
    return given | {folder_url(None, config, table, environ): table for table in tables}


def reach(folder: str | None, config: str | None, environ: Mapping[str, str]) -> Reach:
    """
    How the configuration reaches storage; with --folder and without --config, a missing configuration says nothing.
    """
    try:
        return Reach(load_settings(config, environ))
    except ConfigInvalid:
        if folder is None or config is not None:
            raise
        return Reach(Settings())


@dataclass(frozen=True, slots=True)
class Schedule:
    """When `writer generate` ends, how long it pauses between two files, and the file for its log of txlogs."""

    files: int | None
    seconds: float | None
    pause: timedelta
    close_log: Path | None

    def over(self, number: int, elapsed: float) -> bool:
        """Whether to end after `number` files and `elapsed` seconds."""
        return number == self.files or (self.seconds is not None and elapsed >= self.seconds)


def run_generate(
    writer: Writer, load: Load, schedule: Schedule, stop: StopSignal, progress: Progress, clock: Clock
) -> None:
    """
    Publish generated files until the schedule is over or a stop is requested.
    """
    began, number = clock(), 0

    def elapsed() -> float:
        return (clock() - began).total_seconds()

    def counts() -> dict[str, Any]:
        rows = number * load.records
        rate = round(rows / max(elapsed(), 0.001))
        return {"txlogs": number, "rows": rows, "bytes": rows * load.value_bytes, "rows/s": rate}

    if schedule.close_log is not None:
        _check_writable(schedule.close_log)
    while not (stop.requested or schedule.over(number, elapsed())):
        closed = publish_file(writer, load, number, clock)
        number += 1
        if schedule.close_log is not None:
            with schedule.close_log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(closed) + "\n")
        progress.tell(counts())
        stop.wait(schedule.pause.total_seconds())
    progress.close(counts())


def _check_writable(path: Path) -> None:
    """Checked before anything is published: afterwards it would be too late for the log."""
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as exc:
        hint = "Name a file in a folder that is there and may be written."
        raise NotPossible(f"--close-log {path} cannot be written: {exc.strerror}", hint=hint) from exc


def run_lines(
    writer: Writer,
    files: Sequence[str],
    form: Format,
    bad: Path | None,
    most_bad: int | None,
    stop: StopSignal,
    progress: Progress,
    clock: Clock,
    at: int | None = None,
) -> None:
    """
    Load the files, or stdin when there are none; the file `-` is stdin with positions, from byte `at` on.

    Raises NotPossible after more than `most_bad` bad lines, and when no line that was read is a row.
    """
    began = clock()
    with BadLines(bad or Path(f"{writer.name}.bad.ndjson")) as bad_lines:
        loader = Loader(
            writer,
            form,
            bad_lines,
            clock,
            most_bad=most_bad,
            stopped=lambda: stop.requested,
            on_progress=lambda loader: progress.tell(_loaded(loader, clock() - began)),
        )
        if list(files) == [STDIN]:
            complete = loader.load_replayed(ReplayedStdin(writer.position, at), sys.stdin.fileno())
        else:
            complete = loader.load_files(files) if files else loader.load_pipe(sys.stdin.fileno())
        progress.close(_loaded(loader, clock() - began))
    if bad_lines.count:
        say(f"bad lines: {bad_lines.count}; {bad_lines.path} has each with its reason")
    if not complete:
        say("stopped before the end; start it again with the same --name to continue")
    if bad_lines.count and not loader.rows:
        raise NotPossible(
            f"no line is a row of this table; bad lines: {bad_lines.count}",
            hint=f"{bad_lines.path} has the reason for each. Are --format and the table right? Nothing was published.",
        )


def position_of(folder: Folder, name: str) -> bytes | None:
    """
    Where a run of the writer `name` would continue; raises NotPossible where there is no table.
    """
    check_writer(name)
    try:
        return resume(folder, folder.card(), name, 0).position
    except Missing as exc:
        hint = "Give the folder that `bookkeeper init` printed."
        raise NotPossible(f"there is no card.json in {folder.store.url}", hint=hint) from exc


def _loaded(loader: Loader, elapsed: timedelta) -> dict[str, Any]:
    seconds = max(elapsed.total_seconds(), 0.001)
    facts: dict[str, Any] = {
        "rows": loader.rows,
        "published": loader.published,
        "bad lines": loader.bad_lines.count,
        "rows/s": round(loader.rows / seconds),
        "MB/s": round(loader.read_bytes / seconds / 1e6, 1),
    }
    read = loader.disk_bytes - loader.disk_start
    if loader.disk_total and read > 0:
        facts["done"] = f"{loader.disk_bytes / loader.disk_total:.0%}"
        facts["left"] = timedelta(seconds=round((loader.disk_total - loader.disk_bytes) * seconds / read))
    return facts
