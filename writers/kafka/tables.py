"""
Topics into several tables by one process: each table's slots by themselves, beside those of the others.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from threading import Thread

from bookkeeper.errors import ConfigInvalid, Retry
from bookkeeper.threads import start as start_thread
from writers.kafka.source import Shared, run
from writers.txlog_folders import folder_url, letters_url

log = logging.getLogger(__name__)

_PAUSE = timedelta(minutes=1)


@dataclass(frozen=True)
class Target:
    """The txlog folders of a table and of its dead letters, as URLs, and the topics that are copied into it."""

    folder: str
    letters: str | None
    topics: tuple[str, ...]


def targets(
    topics: Sequence[str],
    folder: str | None,
    letters: str | None,
    config: str | None,
    table: str | None,
    environ: Mapping[str, str],
) -> list[Target]:
    """
    The tables of these options, at least one. A topic is written TOPIC, for the table that `folder` or `table` says, or
    TOPIC=TABLE, for a table of the configuration. Raises ConfigInvalid.
    """
    named = dict[str, list[str]]()
    for item in topics:
        topic, is_mapped, name = item.partition("=")
        if not topic or (is_mapped and not name):
            raise ConfigInvalid(f"--topic {item}: TOPIC or TOPIC=TABLE is expected")
        named.setdefault(name, []).append(topic)
    mapped = [*filter(None, named)]
    if mapped and (folder is not None or letters is not None):
        option = "--folder" if folder is not None else "--dead-letters"
        raise ConfigInvalid(f"{option} is for one table, and --topic names others: {', '.join(mapped)}")
    found = dict[str, Target]()
    for name, own in named.items():
        url = folder_url(folder, config, name or table, environ)
        before = found[url].topics if url in found else ()
        aside = letters_url(letters, folder, config, name or table, environ)
        found[url] = Target(url, aside, tuple(dict.fromkeys([*before, *own])))
    return [*found.values()]


def run_tables(tables: Sequence[Shared], act: Callable[[Shared, int], None]) -> None:
    """
    `run` for each of the tables. One that ends by an error is begun anew after a minute, as long as another goes on.

    Raises what the first of them raised once none goes on, or when a stop is requested.
    """
    if len(tables) == 1:
        run(tables[0], act)
        return
    going = [_Table(shared, act) for shared in tables]
    first = tables[0]
    while alive := [thread for table in going if (thread := table.thread).is_alive()]:
        alive[0].join(0.2)
        for table in going:
            if not (first.stopping() or first.wanted.until_end):
                table.begin_again()
    for table in going:
        if table.error is not None:
            raise table.error


class _Table:
    """One table, in a thread."""

    def __init__(self, shared: Shared, act: Callable[[Shared, int], None]) -> None:
        self._shared, self._run = shared, partial(run, shared, act)
        self.error: BaseException | None = None
        self._ended_at: datetime | None = None
        self.thread = self._started()

    def begin_again(self) -> None:
        """Begins anew where it has ended by an error a minute ago."""
        now = self._shared.clock()
        if self._ended_at is None or self.thread.is_alive() or timedelta(0) <= now - self._ended_at < _PAUSE:
            return
        self._shared.begin_again()
        self.error, self._ended_at = None, None
        self.thread = self._started()

    def _started(self) -> Thread:
        return start_thread(self._guarded, f"copy into {self._shared.folder}")

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as exc:  # noqa: BLE001  (raised by `run_tables`)
            if isinstance(exc, Retry):  # no decision is needed
                self._shared.begin_all()
            else:
                self._shared.stop_all(str(exc))
            self.error, self._ended_at = exc, self._shared.clock()
            facts = {"action": "copy", "folder": self._shared.folder, "cause": str(exc)}
            log.error("table left for a minute", extra={**facts, "hint": getattr(exc, "hint", "")})
