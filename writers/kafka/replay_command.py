"""
The command `writer kafka-replay`, with its options parsed.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from bookkeeper.console.output import printable, say
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.contract import letter_export
from bookkeeper.contract.names import check_writer
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ConfigInvalid
from bookkeeper.stores.store import Store
from writers.kafka.client import properties_in
from writers.kafka.command import reading_of
from writers.kafka.replay import Replay, Target
from writers.kafka.source import reader_of
from writers.timing import Clock, Wait
from writers.writer import Writer

#: reasons that are shown
_MOST_SHOWN = 10


def run_replay(
    file: str,
    folders: tuple[str, str | None],
    stores: Callable[[str], Store],
    name: str,
    options: Mapping[str, Any],
    stop: StopSignal,
    progress: Progress,
    show: Callable[[Writer], None],
    clock: Clock,
) -> None:
    """
    Replays the dead letters in a file. `folders` are the txlog folders of the table and of its dead letters; `show` is
    given the writer of the rows, for its metrics. Raises what Replay.run raises, ConfigInvalid.
    """
    form, filled = reading_of(options, properties_in(options["client"]))
    rows, letters = folders
    if letters is None:
        hint = "Give --table of a table with dead-letters = true, or --dead-letters URL."
        raise ConfigInvalid("it is not said where the dead letters are", hint=hint)
    patience = options["patience"]
    opener = partial(_opened, stores, check_writer(letter_export.replay_name(name)), clock, stop.wait, patience)
    export, began = letter_export.opened(file), clock()

    def counts(replay: Replay) -> dict[str, Any]:
        seconds = max((clock() - began).total_seconds(), 0.001)
        return {"replayed": replay.replayed, "bad": replay.bad, "rows/s": round(replay.replayed / seconds)}

    target = opener(rows)
    with target.writer, (aside := opener(letters)).writer:
        show(target.writer)
        replay = Replay(
            export,
            name,
            target,
            aside,
            lambda writer: reader_of(writer, form, filled),
            clock,
            stop.wait,
            patience,
            lambda replay: progress.tell(counts(replay)),
        )
        done = replay.run()
        progress.close(counts(replay))
    _say_outcome(replay, done)


def _say_outcome(replay: Replay, done: bool) -> None:
    for reason, offset in [*replay.reasons.items()][:_MOST_SHOWN]:
        say(f"still bad, such as offset {offset}: {printable(reason)}")
    if not done:
        say("stopped before the end; start it again with the same file and --name to continue")


def _opened(
    stores: Callable[[str], Store], name: str, clock: Clock, wait: Wait, patience: timedelta, url: str
) -> Target:
    folder = Folder(stores(url))
    return Target(folder, Writer.open(folder, name, clock=clock, wait=wait, patience=patience, stores=stores))
