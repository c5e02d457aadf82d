"""
`bookkeeper consumers` and `bookkeeper lag`: the consumers of a table, their state, and how far each is behind.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import Opened, opened, utc_now
from bookkeeper.console import completing
from bookkeeper.console.colour import BOLD, FAINT, as_wanted, painted
from bookkeeper.console.errors import Command, Commands
from bookkeeper.console.options import DURATION, common
from bookkeeper.console.output import say, show_record, show_rows
from bookkeeper.console.output import table as rule

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from bookkeeper.console.signals import StopSignal
    from bookkeeper.history.consumer_state import ConsumerState
    from bookkeeper.history.registry import Registry

#: share of max-hold: below it the snapshots that a first offset keeps cost next to nothing
_WORTH_A_MEND = 0.1


def registry_of(there: Opened) -> "Registry":
    """
    The consumers of a table: those in its folder and in the configuration.
    """
    from bookkeeper.history.registry import Registry

    return Registry(there.folder.store, there.table.consumers)


def unreadable_consumers(there: Opened) -> list[str]:
    """
    Each consumer whose record or checkpoint cannot be read, why, and what that means for expiry.
    """
    from bookkeeper.config.units import format_duration
    from bookkeeper.history.consumer_state import read_all
    from bookkeeper.stores.open import stores_with

    now, most = utc_now(), format_duration(there.table.reaper.max_hold)
    found = read_all(registry_of(there), stores_with(there.settings.storage))
    means = f"no snapshot expires before max-hold ({most}, or its bytes) is used up; then what it needs may go"
    unread = [item for item in found if item.trouble and not item.consumer.lapsed(now)]
    return [f"{item.consumer.name}: {item.trouble}: {means}" for item in unread]


def consumer_states(there: Opened) -> "tuple[list[ConsumerState], Table]":
    """
    The state of every consumer, and the table it was compared with.
    """
    from bookkeeper.catalogs.commit import load_table
    from bookkeeper.history.consumer_state import evaluate, read_all
    from bookkeeper.stores.open import stores_with

    # The checkpoints first: a snapshot that the table then lacks was expired, and is not a newer one.
    readings = read_all(registry_of(there), stores_with(there.settings.storage))
    table = load_table(there.ledger.catalog, there.table.identifier)
    return evaluate(readings, table.metadata, there.table.reaper, utc_now()), table


@click.group(cls=Commands, invoke_without_command=True, short_help="List the consumers of a table and their state.")
@common
@click.option("--mend", is_flag=True, help="Show which checkpoints would be mended and how; with --yes do it.")
@click.option("--yes", is_flag=True, help="With --mend: do it. The queries must be stopped.")
@click.pass_context
def consumers(
    context: click.Context, config: str | None, table: str | None, as_json: bool, mend: bool, yes: bool
) -> None:
    """
    List the consumers of a table: the position of each, and which are at risk, cut off, stalled, or bound to grow.

    --mend rewrites the first offset of a stopped available-now query (docs/consumers.md).

    \b
    Example:
      bookkeeper consumers --table events
      bookkeeper consumers --mend --yes
      bookkeeper consumers add nightly --checkpoint /var/lib/nightly-cp --available-now
    """
    if context.invoked_subcommand is None:
        there = opened(config, table)
        _mend(there, as_json, yes) if mend else _list(there, as_json)


def stopped_members(there: Opened) -> list[str]:
    """
    Each consumer that a stopped process on this machine reads, which, and what that means.
    """
    found = ((consumer.name, _stopped(there, consumer.name)) for consumer in registry_of(there).all())
    return [f"{name}: {what}" for name, what in found if what]


def _stopped(there: Opened, name: str) -> str | None:
    import socket

    from bookkeeper.consumers.members import stopped_member

    return stopped_member(there.folder.store, name, socket.gethostname())


def _list(there: Opened, as_json: bool) -> None:
    found, _ = consumer_states(there)
    rows = [_row(state, _stopped(there, state.name)) for state in found]
    show_rows(rows, as_json, nothing="no consumer is registered")


def _row(state: "ConsumerState", stopped: str | None) -> dict[str, Any]:
    consumer, checkpoint = state.checkpoint_read.consumer, state.checkpoint_read.checkpoint
    offset = state.checkpoint_read.offsets[0] if state.checkpoint_read.offsets else None
    return {
        "consumer": state.name,
        "state": state.state,
        "snapshot": str(offset.snapshot) if offset and offset.snapshot is not None else None,
        "batch": checkpoint.batch if checkpoint else None,
        "committed": checkpoint.at if checkpoint else None,
        "until": consumer.until,
        "max_hold_used": round(state.used, 3),
        "checkpoint": consumer.checkpoint,
        "by": consumer.by,
        "what": _what(state, stopped),
    }


def _what(state: "ConsumerState", stopped: str | None = None) -> str | None:
    parts = [part for part in (state.why, stopped) if part]
    parts += ["at risk: it will be cut off when max-hold is used up"] if state.at_risk else []
    if state.bound_to_grow and state.used >= _WORTH_A_MEND:
        share = f"{state.used:.0%}"
        parts.append(f"bound to grow: its first offset takes {share} of max-hold; --mend it between two runs")
    if state.state in ("to mend", "stalled"):
        parts.append("stop it and --mend")
    return "; ".join(parts) or None


def _mend(there: Opened, as_json: bool, yes: bool) -> None:
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.history.checkpoint_store import open_checkpoint
    from bookkeeper.history.mend import mend, plan
    from bookkeeper.stores.open import stores_with

    rows = []
    for state in consumer_states(there)[0]:
        consumer = state.checkpoint_read.consumer
        if consumer.checkpoint is None:
            continue
        row: dict[str, Any] = {"consumer": consumer.name, "outcome": "nothing to mend"}
        try:
            place = open_checkpoint(consumer.checkpoint, stores_with(there.settings.storage))
            planned = plan(state, place)
            if planned is not None:
                outcome = "would be mended"
                if yes:
                    mend(place, planned, consumer.source)
                    outcome = "mended"
                row |= {"outcome": outcome, "file": f"{place.url}/{planned.key}"}
                row |= {"says": planned.before, "will_say": planned.after, "checksum_goes": planned.checksum}
        except BookkeeperError as exc:
            row |= {"outcome": f"{type(exc).__name__}: {exc}"}
        rows.append(row)
    show_rows(rows, as_json, nothing="no query is registered")
    if not yes and any(row["outcome"] == "would be mended" for row in rows):
        say("nothing was changed; stop the queries, then add --yes")


@consumers.command("list")
@common
def list_(config: str | None, table: str | None, as_json: bool) -> None:
    """
    The same as `bookkeeper consumers`.

    \b
    Example:
      bookkeeper consumers list --table events --json
    """
    _list(opened(config, table), as_json)


@consumers.command(short_help="Register a consumer, or change it.")
@click.argument("name")
@common
@click.option("--checkpoint", metavar="URL", help="A Spark query's checkpoint location.")
@click.option("--source", type=click.IntRange(min=0), help="Index of the source, where the query has several.")
@click.option("--available-now", is_flag=True, help="The query runs with Spark's own trigger available-now.")
@click.option(
    "--snapshot", metavar="ID", help="Of a reader other than Spark: the snapshot it needs, or `current`; with --ttl."
)
@click.option("--ttl", type=DURATION, help="How long the reader needs the snapshot; add it again to renew.")
def add(
    name: str,
    config: str | None,
    table: str | None,
    as_json: bool,
    checkpoint: str | None,
    source: int | None,
    available_now: bool,
    snapshot: str | None,
    ttl: timedelta | None,
) -> None:
    """
    Register a consumer under NAME, or change it: the reaper keeps the snapshots it needs, up to max-hold.

    \b
    Example:
      bookkeeper consumers add nightly --checkpoint s3://lake/checkpoints/nightly --available-now
      bookkeeper consumers add export --snapshot current --ttl 2h
    """
    from bookkeeper.catalogs.commit import load_table

    if bool(checkpoint) == bool(snapshot) or bool(snapshot) != bool(ttl):
        raise click.UsageError("give --checkpoint, or --snapshot and --ttl")
    there = opened(config, table)
    metadata = load_table(there.ledger.catalog, there.table.identifier).metadata
    _check_folder(there, metadata)
    if checkpoint:
        record = _add_query(there, name, checkpoint, source, available_now)
    else:
        assert snapshot is not None and ttl is not None
        record = _add_reader(there, metadata, name, snapshot, ttl)
    show_record({"table": there.table.name, "consumer": name, **record}, as_json)


def _check_folder(there: Opened, metadata: "TableMetadata") -> None:
    """
    Raises WrongFolder where the folder is not that of the table, which has marks: no reaper would see what is
    registered there.
    """
    from bookkeeper.contract.marks import PROPERTY
    from bookkeeper.contract.txlog_folder import CONFIGURED

    if PROPERTY in metadata.properties:
        there.folder.check(str(metadata.table_uuid), CONFIGURED)


def _add_query(there: Opened, name: str, checkpoint: str, source: int | None, available_now: bool) -> dict[str, Any]:
    from bookkeeper.history.checkpoint_store import absolute
    from bookkeeper.history.registry import COMMAND, spark

    where = absolute(checkpoint)
    consumer = spark(name, where, utc_now(), source=source, available_now=available_now, by=COMMAND)
    registry_of(there).add(consumer)
    found = next(state for state in consumer_states(there)[0] if state.name == name)
    return {"checkpoint": where, "state": found.state, "what": _what(found)}


def _add_reader(there: Opened, metadata: "TableMetadata", name: str, snapshot: str, ttl: timedelta) -> dict[str, Any]:
    from bookkeeper.catalogs.commit import load_table
    from bookkeeper.errors import NotPossible
    from bookkeeper.history.registry import reader

    wanted = metadata.current_snapshot_id if snapshot == "current" else int(snapshot) if snapshot.isdigit() else None
    if wanted is None:
        raise NotPossible(f"--snapshot {snapshot}: the id of a snapshot, or `current` once there is one, is allowed")
    gone = NotPossible(f"snapshot {wanted} is not in the table", hint="It may be expired; take `current`.")
    if metadata.snapshot_by_id(wanted) is None:
        raise gone  # before it replaces another record of this name
    consumer = reader(name, wanted, utc_now(), ttl)
    registry_of(there).add(consumer)
    # Registered first, checked second: a snapshot that is still there now is not expired before the ttl is over.
    metadata = load_table(there.ledger.catalog, there.table.identifier).metadata
    if metadata.snapshot_by_id(wanted) is None:
        registry_of(there).remove(name)
        raise gone
    return {"snapshot": str(wanted), "until": consumer.until}


@consumers.command()
@click.argument("name", shell_complete=completing.consumers)
@common
def remove(name: str, config: str | None, table: str | None, as_json: bool) -> None:
    """
    Forget the consumer NAME: the reaper keeps nothing for it.

    \b
    Example:
      bookkeeper consumers remove nightly --table events
    """
    there = opened(config, table)
    registry_of(there).remove(name)
    show_record({"table": there.table.name, "removed": name}, as_json)


@click.command(cls=Command, short_help="Show how far each consumer is behind.")
@common
@click.option("--watch", type=DURATION, metavar="PAUSE", help="Repeat after each pause, until stopped.")
def lag(config: str | None, table: str | None, as_json: bool, watch: timedelta | None) -> None:
    """
    Show how far each consumer is behind: snapshots, files, rows and bytes unread, and the age of the oldest of them.

    \b
    Example:
      bookkeeper lag --table events --json
      bookkeeper lag --watch 5s
    """
    from bookkeeper.console.signals import StopSignal

    there = opened(config, table)
    if watch is None:
        show_lag(there, as_json, utc_now)
    elif sys.stdout.isatty() and sys.stdin.isatty() and not as_json:
        live(there, watch, StopSignal.on_signals())
    else:
        repeat(lambda: show_lag(there, as_json, utc_now), watch, StopSignal.on_signals().wait)


def repeat(show: Callable[[], None], pause: timedelta, wait: Callable[[float], bool]) -> None:
    """
    Show, wait, and show again until `wait` says stop.
    """
    show()
    while not wait(pause.total_seconds()):
        click.echo("")
        show()


def live(there: Opened, pause: timedelta, stop: "StopSignal") -> None:
    """
    Redraw the lag on a terminal until q or ^C; a temporary error is shown, and the read is tried again.
    """
    from bookkeeper.console.screen import QUIT, Screen
    from bookkeeper.errors import Retry

    keys = [""]
    with Screen() as screen:

        def woken() -> bool:
            keys[0] = screen.key()
            return bool(keys[0]) or screen.resized()

        while not set(keys[0]) & QUIT:
            try:
                rows = lag_rows(there, utc_now())
                drawn = rule(rows, paint=True) if rows else ["no consumer is registered"]
            except Retry as error:
                drawn = [f"waiting: {error}"]
            head = (
                f"{painted(f'lag of {there.table.name}', BOLD)}  {utc_now():%H:%M:%S} UTC  {painted('q ends', FAINT)}"
            )
            screen.draw(as_wanted([head, "", *drawn]))
            if stop.wait(pause.total_seconds(), screen.wakes, woken):
                return


def show_lag(there: Opened, as_json: bool, clock: Callable[[], datetime]) -> None:
    """
    One row per consumer.
    """
    show_rows(lag_rows(there, clock()), as_json, nothing="no consumer is registered")


def lag_rows(there: Opened, now: datetime) -> list[dict[str, Any]]:
    """
    The lag of every consumer; None where it is unknown. Of one that is cut off it is at least that.

    `kept_for`: the age from which the catalog's service expires snapshots, also those that a consumer needs.
    """
    from bookkeeper.config.maintained import is_by_catalog
    from bookkeeper.consumers.lag import added_files
    from bookkeeper.consumers.lag import lag as lag_of
    from bookkeeper.history.consumer_state import CUT_OFF

    found, table = consumer_states(there)
    added, rows = added_files(table.io), list[dict[str, Any]]()
    # Whatever is registered: a service of the catalog knows no consumers.
    kept = {"kept_for": there.table.service.snapshot_age} if is_by_catalog(there.table) else {}
    for state in found:
        behind = lag_of(state, table.metadata, added, now)
        counts = asdict(behind) if behind else dict.fromkeys(("snapshots", "files", "rows", "bytes", "behind"))
        more = "at least so much: snapshots that it has not read are expired" if state.state == CUT_OFF else None
        what = more or _stopped(there, state.name)
        more_about = {**kept, **({"what": what} if what else {})}
        rows.append({"consumer": state.name, "state": state.state, **counts, **more_about})
    return rows


COMMANDS = (consumers, lag)
