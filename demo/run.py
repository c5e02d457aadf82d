"""
One demo from the empty folder to the closing table.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from demo import commands
from demo.children import Children
from demo.closing import MISSED, closing
from demo.evidence import load
from demo.folder import DemoPaths, fresh
from demo.observer import Observer
from demo.options import DemoOptions
from demo.pending import PendingWatch
from demo.scenario import Scenario
from demo.table import TableWatch, path_of
from demo.view import View


def run(options: DemoOptions, stream: TextIO) -> int:
    """
    The whole demo; 0 when every published row arrived exactly once. Raises BookkeeperError when it cannot go on.
    """
    with fresh(options.folder) as paths:
        with Children(paths.logs) as children, View(stream, time.monotonic) as view:
            if options.chaos:
                view.say(f"chaos with seed {options.seed}; the same again: make demo CHAOS=1 SEED={options.seed}")
            scenario = Scenario(options, paths, children, view, time.monotonic, time.sleep)
            table = _play(scenario)
        done = closing(load(paths.evidence))
        print("", *done.lines, *_more(scenario, table), "", done.verdict, file=stream, sep="\n")
        return 0 if done.exact else MISSED


def _play(scenario: Scenario) -> TableWatch:
    scenario.begin()
    folder, table = _opened(scenario.paths)
    with _watching(scenario.paths, folder, table) as observer:
        scenario.await_consumer()
        scenario.write(observer, folder)
        scenario.drain(observer)
    return table


def _opened(paths: DemoPaths) -> tuple[Path, TableWatch]:
    """The txlog folder and the table, as any stranger finds them."""
    from bookkeeper.catalogs.commit import load_table
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.config.load import load as load_config
    from bookkeeper.contract.txlog_folder import folder_url

    settings = load_config(str(paths.config), {})
    table, catalog = settings.tables[commands.TABLE], open_catalog(settings.catalog)
    folder = folder_url(table, load_table(catalog, table.identifier).metadata.location)
    return path_of(folder), TableWatch(catalog, table.identifier)


@contextmanager
def _watching(paths: DemoPaths, folder: Path, table: TableWatch) -> Iterator[Observer]:
    pending = PendingWatch(folder / "pending")
    pending.start()
    try:
        yield Observer(paths.evidence, commands.close_logs(paths), pending, table, time.time)
    finally:
        pending.end()


def _more(scenario: Scenario, table: TableWatch) -> Iterator[str]:
    yield f"{table.rewrites} rewrites replaced {table.replaced_files} small files; {table.live_files} files are live"
    yield f"retention dropped {table.dropped_files} data files"
    yield f"the reaper expired {table.expired()} snapshots and deleted {table.deleted()} data files"
    if scenario.options.chaos:
        yield f"kill -9: {scenario.killed()}"
