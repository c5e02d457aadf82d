"""
`bookkeeper replay`, `forget`, `rehash` and `discard`: what a person decides about writers and their txlogs.

Each changes marks only together with a snapshot. The daemon may run meanwhile: one of both commits wins, and the other
loads the table again.
"""

import os
from datetime import timedelta
from typing import Any

import click

from bookkeeper.cli.context import Opened, opened, txlog_name, utc_now
from bookkeeper.console import completing
from bookkeeper.console.errors import Command
from bookkeeper.console.options import common
from bookkeeper.console.output import say, show_record, show_rows
from bookkeeper.contract.offsets import MOST_SLOTS

_AGAIN = "pending again"


@click.command(cls=Command, short_help="Put rejected txlogs back into pending/.")
@click.argument("txlogs", metavar="TXLOG...", nargs=-1, shell_complete=completing.txlogs(completing.REJECTED))
@common
@click.option("--all", "everything", is_flag=True, help="Every rejected txlog that can be replayed.")
@click.option("--force", is_flag=True, help="Also a txlog whose mark was pruned: a commit opens a hole for it first.")
def replay(
    txlogs: tuple[str, ...], config: str | None, table: str | None, as_json: bool, everything: bool, force: bool
) -> None:
    """
    Put rejected TXLOGs back into pending/, once the cause of the rejection is repaired.

    A txlog is refused when it is in the table already, when its files are or were, or when its position no longer
    fits. The exit code is 1 when a TXLOG that was named is refused; with --all when every one is. With --force, a
    txlog that came in before the oldest kept snapshot and was compacted since is not recognised: its rows may be
    double.

    \b
    Example:
      bookkeeper replay --all
      bookkeeper replay ingest-7.0199c0de-0000-7000-8000-000000000001.0000000042.txlog.avro
    """
    from bookkeeper.errors import NotPossible

    if bool(txlogs) == everything:
        raise click.UsageError("give the names of TXLOGs, or --all")
    there = opened(config, table)
    names = [item.name for item in there.folder.rejected()] if everything else [txlog_name(text) for text in txlogs]
    rows = [{"txlog": str(name), "outcome": _replay(there, name, force)} for name in names]
    show_rows(rows, as_json, nothing="no txlog is rejected")
    failed = sum(row["outcome"] != _AGAIN for row in rows)
    if failed and failed == len(rows):
        raise NotPossible("no txlog was replayed", hint="The outcome of each says why.")
    if failed and not everything:
        raise NotPossible("not every txlog was replayed", hint="The outcome of each says why.")


def _replay(there: Opened, name: Any, force: bool) -> str:
    from bookkeeper.commands.replay import replay as give_back
    from bookkeeper.errors import BookkeeperError

    try:
        give_back(there.folder, there.ledger, there.table, name, utc_now(), force)
    except BookkeeperError as error:
        return f"{type(error).__name__}: {error}"
    return _AGAIN


@click.command(cls=Command, short_help="Forget writers: positions and marks.")
@click.argument("writers", metavar="[WRITER]...", nargs=-1, shell_complete=completing.writers)
@common
@click.option("--idle", metavar="AGE", help="Only writers whose last commit is this long ago, such as 30d.")
@click.option("--channel", metavar="CHANNEL", help="Of one WRITER only the offset of this channel.")
def forget(
    writers: tuple[str, ...],
    config: str | None,
    table: str | None,
    as_json: bool,
    idle: str | None,
    channel: str | None,
) -> None:
    """
    Forget WRITERs: their positions and offsets, and their marks, in one commit.

    A WRITER is a name, or a pattern with * or ?. Without one, --idle says which. The next incarnation of each starts
    from the beginning of its source: make sure that no run of it is left. Its position goes at once, and so do marks of
    runs that are idle for `marks-keep`, or that say that they began in the future; other marks go with time.

    A writer with pending txlogs is kept, and one with a position and rejected txlogs. Where it is named, nothing is
    forgotten; of a pattern, and with --idle, the others are. A slot, a writer with offsets, is forgotten only by its
    name.

    With --channel only the offset of that channel goes, which makes room for another one. Refused while a pending or a
    rejected txlog names it.

    \b
    Example:
      bookkeeper forget ingest-7 --table events
      bookkeeper forget 'ingest-*' --table events
      bookkeeper forget orders-03 --channel orders/17 --table events
    """
    from bookkeeper.config.units import duration

    if not writers and idle is None:
        raise click.UsageError("give the names of WRITERs, or --idle")
    if channel is not None and (len(writers) != 1 or idle is not None):
        raise click.UsageError("--channel is of one WRITER, and not with --idle")
    try:
        span = None if idle is None else duration(idle)
    except ValueError as exc:
        raise click.UsageError(f"--idle: {exc}") from exc
    there = opened(config, table)
    if channel is not None:
        show_record(_forget_channel(there, writers[0], channel), as_json)
    else:
        show_record(_forget_writers(there, writers, span), as_json)


def _forget_channel(there: Opened, writer: str, channel: str) -> dict[str, Any]:
    from bookkeeper.commands.forget import forget_channel

    view = there.view()
    left = forget_channel(view.marks, there.folder, there.table, writer, channel)
    after = there.publisher.record(view, left, f"forget {channel} of {writer}")
    return {"table": there.table.name, "forgotten": [channel], "snapshot": after.marks.snapshot}


def _forget_writers(there: Opened, writers: tuple[str, ...], span: timedelta | None) -> dict[str, Any]:
    from bookkeeper.commands.forget import forget as without
    from bookkeeper.commands.forget import reason
    from bookkeeper.errors import NotPossible

    view, now = there.view(), utc_now()
    found = without(view.marks, there.folder, there.table, writers, span, now)
    if not there.ledger.clock.allows_destroying():
        raise NotPossible("this clock differs from the storage's: it cannot tell what is idle", hint="Set it (NTP).")
    for writer, why in found.kept.items():
        say(f"{writer} is kept: {why}")
    after = there.publisher.record(view, found.marks, reason(found.forgotten))
    return {"table": there.table.name, "forgotten": found.forgotten, "snapshot": after.marks.snapshot}


@click.command(cls=Command, short_help="Change how many slots a source has.")
@click.argument("source", metavar="SOURCE")
@click.option("--slots", type=click.IntRange(1, MOST_SLOTS), required=True, help="How many slots it has from then on.")
@common
@click.option("--yes", is_flag=True, help="Do it; without, only show what would be moved.")
def rehash(source: str, slots: int, config: str | None, table: str | None, as_json: bool, yes: bool) -> None:
    """
    Change how many slots SOURCE has: one commit moves the offset of each channel to its new slot.

    The slots of orders are the writers orders-00, orders-01, and so on. Stop all instances of the source first, let
    their txlogs drain, and start them with the new number afterwards. Refused while a txlog of a slot is pending or
    rejected. An instance that still runs is fenced, and its rows are read again: none is lost or double.

    \b
    Example:
      bookkeeper rehash orders --slots 32 --table events
      bookkeeper rehash orders --slots 32 --table events --yes
    """
    from bookkeeper.commands.rehash import claim_letters
    from bookkeeper.commands.rehash import rehash as moved_by
    from bookkeeper.config.units import epoch_ms

    there = opened(config, table)
    view = there.view()
    most = there.table.max_writers
    found = moved_by(view.marks, there.folder, source, slots, most, epoch_ms(utc_now()), os.urandom(10))
    record: dict[str, Any] = {"table": there.table.name, "source": source, "slots": slots}
    record |= {"channels": found.channels, "moved": found.moved, "outcome": "dry run"}
    if found.marks is None:
        record["outcome"] = "nothing to move"
    elif yes:
        after = there.publisher.record(view, found.marks, f"rehash {source} to {slots} slots")
        record |= {"outcome": "moved", "snapshot": after.marks.snapshot}
    if yes:
        claim_letters(there.folder, source, epoch_ms(utc_now()), os.urandom(10))
    show_record(record, as_json)


@click.command(cls=Command, short_help="Give up missing txlogs of one incarnation.")
@click.argument("run", metavar="WRITER.INCARNATION", shell_complete=completing.runs)
@click.option("--up-to", type=click.IntRange(min=1), required=True, help="Give up what is missing up to this sequence.")
@common
@click.option("--yes", is_flag=True, help="Do it; without, only show what would be given up.")
def discard(run: str, up_to: int, config: str | None, table: str | None, as_json: bool, yes: bool) -> None:
    """
    Give up missing txlogs of one incarnation of a writer, so that it continues after more than 64 are missing.

    Their rows stay out, also when a missing txlog turns up later. Pending and rejected txlogs are never given up,
    but on a keyed table: there a rejected one holds its writer, and is given up too. If the writer has positions, its
    next txlogs are rejected: it starts again, and reads those rows again.

    \b
    Example:
      bookkeeper writers
      bookkeeper discard ingest-7.0199c0de-0000-7000-8000-000000000001 --up-to 99
      bookkeeper discard ingest-7.0199c0de-0000-7000-8000-000000000001 --up-to 99 --yes
    """
    from bookkeeper.commands.discard import discard as give_up
    from bookkeeper.commands.discard import outlook

    there = opened(config, table)
    view, given = outlook(there.folder, there.ledger, txlog_name(f"{run}.{up_to:010d}.txlog.avro"))
    record: dict[str, Any] = {
        "table": there.table.name,
        "run": run,
        "mark": given.mark,
        "given_up": len(given.lost),
        "first": given.lost[0],
        "last": given.lost[-1],
        "holes": len(given.holes),
        "outcome": "dry run",
    }
    if yes:
        after = give_up(there.folder, there.ledger, view, given, utc_now())
        record |= {"outcome": "given up", "snapshot": after.marks.snapshot}
    show_record(record, as_json)


COMMANDS = (replay, forget, rehash, discard)
