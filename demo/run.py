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
from demo.course import Course
from demo.evidence import load
from demo.pending import Pending
from demo.place import Place, fresh
from demo.table import TableWatch, path_of
from demo.view import View
from demo.wishes import Wishes
from demo.witness import Witness


def run(wishes: Wishes, stream: TextIO) -> int:
    """
    The whole demo; 0 when every published row arrived exactly once. Raises BookkeeperError when it cannot go on.
    """
    with fresh(wishes.folder) as place:
        with Children(place.logs) as children, View(stream, time.monotonic) as view:
            if wishes.chaos:
                view.say(f"chaos with seed {wishes.seed}; the same again: make demo CHAOS=1 SEED={wishes.seed}")
            course = Course(wishes, place, children, view, time.monotonic, time.sleep)
            table = _play(course)
        done = closing(load(place.evidence))
        print("", *done.lines, *_more(course, table), "", done.verdict, file=stream, sep="\n")
        return 0 if done.even else MISSED


def _play(course: Course) -> TableWatch:
    course.begin()
    folder, table = _opened(course.place)
    with _watching(course.place, folder, table) as witness:
        course.await_consumer()
        course.write(witness, folder)
        course.drain(witness)
    return table


def _opened(place: Place) -> tuple[Path, TableWatch]:
    """The txlog folder and the table, as any stranger finds them."""
    from bookkeeper.catalogs.open import load_table, open_catalog
    from bookkeeper.config.load import load as load_config
    from bookkeeper.core.folder import folder_url

    settings = load_config(str(place.config), {})
    table, catalog = settings.tables[commands.TABLE], open_catalog(settings.catalog)
    folder = folder_url(table, load_table(catalog, table.identifier).metadata.location)
    return path_of(folder), TableWatch(catalog, table.identifier)


@contextmanager
def _watching(place: Place, folder: Path, table: TableWatch) -> Iterator[Witness]:
    pending = Pending(folder / "pending")
    pending.start()
    try:
        yield Witness(place.evidence, commands.close_logs(place), pending, table, time.time)
    finally:
        pending.end()


def _more(course: Course, table: TableWatch) -> Iterator[str]:
    yield f"retention dropped {table.dropped_files} data files"
    yield f"the reaper expired {table.expired()} snapshots and deleted {table.deleted()} data files"
    if course.wishes.chaos:
        yield f"kill -9: {course.killed()}"
