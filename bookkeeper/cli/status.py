"""
Commands that only read: pending, show, rejected, status, writers, verify.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import Opened, opened, txlog_name, utc_now
from bookkeeper.console import completing
from bookkeeper.console.errors import Command, exit_code
from bookkeeper.console.options import common
from bookkeeper.console.output import say, show_record, show_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from bookkeeper.contract.names import TxlogName
    from bookkeeper.contract.rewrite import Rewrite
    from bookkeeper.contract.txlog import Txlog
    from bookkeeper.contract.txlog_folder import Folder, Found
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.folds.stats import EqualityDeletes
    from bookkeeper.format.entries import DataFile
    from bookkeeper.ledger.view import View


@click.command(cls=Command, short_help="List txlogs and rewrites that are not committed yet.")
@common
def pending(config: str | None, table: str | None, as_json: bool) -> None:
    """
    List published txlogs that are not committed yet, oldest first; then pending rewrites, if there are any.

    Of a txlog that is held, and of those behind it, `held` says why: they stay pending until a person acts. The oldest
    1,000 are looked at.

    \b
    Example:
      bookkeeper pending --table events --json
    """
    from bookkeeper.tick.select import in_order

    there, now = opened(config, table), utc_now()
    found = there.folder.pending()
    held = _held(there, found)
    txlogs: list[dict[str, Any]] = [
        {
            "writer": item.name.writer,
            "sequence": item.name.sequence,
            "age": now - item.modified,
            "bytes": item.size,
            "txlog": str(item.name),
            "held": _why_held(item.name, held),
        }
        for item in in_order(found)
    ]
    rewrites = _pending_rewrites(there, now)
    if as_json:
        show_rows([*txlogs, *rewrites], as_json)
        return
    show_rows(txlogs, as_json, nothing="no txlog is pending")
    if rewrites:
        say("")
        show_rows(rewrites, as_json)


def _held(there: Opened, found: "Sequence[Found]") -> "Mapping[TxlogName, BookkeeperError]":
    """The held txlogs among the pending ones; none while the table is halted, or where they cannot be looked at."""
    from bookkeeper.errors import BookkeeperError

    if not found:
        return {}
    try:
        return _held_in(there, there.view(), found)
    except BookkeeperError as error:
        say(f"what is held is unknown: {error}")
        return {}


def _held_in(there: Opened, view: "View", found: "Sequence[Found]") -> "Mapping[TxlogName, BookkeeperError]":
    from bookkeeper.commands.held import held_txlogs
    from bookkeeper.config.units import epoch_ms

    waiting = [item for item in found if not view.marks.is_in(item.name)]
    return held_txlogs(there.folder, there.ledger, view, there.table, waiting, epoch_ms(utc_now()))


def _why_held(name: "TxlogName", held: "Mapping[TxlogName, BookkeeperError]") -> str | None:
    if (error := held.get(name)) is not None:
        return f"{error} {error.hint}" if error.hint else str(error)
    before = [other for other in held if other.incarnation_key == name.incarnation_key and other < name]
    return f"waits for {min(before)}" if before else None


def _pending_rewrites(there: Opened, now: Any) -> list[dict[str, Any]]:
    """Each with the snapshot that it read and its numbers of files, None where it cannot be read."""
    from bookkeeper.commands.rewrites import read_pending
    from bookkeeper.contract.rewrite import Rewrite

    rows = []
    for item, found in read_pending(there.folder, there.table.max_txlog_bytes):
        read = found if isinstance(found, Rewrite) else None
        rows.append(
            {
                "rewrite": item.name,
                "age": now - item.modified,
                "bytes": item.size,
                "base": read and read.base.snapshot_id,
                "replaces": read and len(read.replaced),
                "adds": read and len(read.added),
                "trouble": None if read else f"{type(found).__name__}: {found}",
            }
        )
    return rows


@click.command(cls=Command, short_help="List rejected txlogs, rewrites and requests.")
@common
def rejected(config: str | None, table: str | None, as_json: bool) -> None:
    """
    List rejected txlogs, rewrites and requests for columns with their reasons.

    A rejected rewrite needs nothing: its compactor plans anew, and it is deleted when it is orphan-age old. A request
    for a column is deleted after ten minutes; then writers may ask again.

    \b
    Example:
      bookkeeper rejected --table events
    """
    from bookkeeper.contract.pending_rewrites import rejected_rewrites
    from bookkeeper.contract.tray import FoundObject
    from bookkeeper.contract.txlog_folder import Found

    folder, now = opened(config, table).folder, utc_now()
    found: list[Found | FoundObject] = [*folder.rejected(), *rejected_rewrites(folder)]
    rows = [{"txlog": str(item.name), "age": now - item.modified, **_why(folder, item.name)} for item in found]
    requests = _refused_requests(folder, now)
    if as_json:
        show_rows([*rows, *requests], as_json)
        return
    show_rows(rows, as_json, nothing="no txlog is rejected")
    if requests:
        say("")
        show_rows(requests, as_json)


def _refused_requests(folder: "Folder", now: "datetime") -> list[dict[str, Any]]:
    """Each with what it asks for, None where that cannot be read."""
    from bookkeeper.contract.column_requests import TRAY, read_refused

    found = TRAY.rejected(folder)
    asked = read_refused(folder, [item.name for item in found])
    rows = []
    for item in found:
        change, column, kind = asked.get(item.name) or (None, None, None)
        about = {"change": change, "column": column, "type": kind, "age": now - item.modified}
        rows.append({"request": item.name, **about, **_why(folder, item.name)})
    return rows


def _why(folder: "Folder", name: object) -> dict[str, Any]:
    reason = folder.reason(str(name))
    return {"error": reason.get("error"), "reason": reason.get("reason"), "hint": reason.get("hint") or None}


@click.command(cls=Command, short_help="Show one pending or rejected txlog or rewrite.")
@click.argument("txlog", shell_complete=completing.txlogs(completing.PENDING, completing.REJECTED))
@common
def show(txlog: str, config: str | None, table: str | None, as_json: bool) -> None:
    """
    Show the content of one pending or rejected TXLOG or rewrite, and whether this table accepts it.

    \b
    Example:
      bookkeeper show ingest-7.0199c0de-0000-7000-8000-000000000001.0000000042.txlog.avro
    """
    from bookkeeper.contract.pending_rewrites import is_rewrite

    there, named = opened(config, table), txlog.rsplit("/", 1)[-1]
    if is_rewrite(named):
        _show_rewrite(there, named, as_json)
        return
    name = txlog_name(named)
    place, data = _find(there, name)
    decoded, verdict = _judged(there, name, data)
    about: dict[str, Any] = {"txlog": str(name), "place": place, "verdict": verdict}
    if decoded is None:
        show_record(about, as_json)
        return
    partition = partial(_partition, there.view(), decoded.spec_id)
    files = [_file(file, partition) for file in decoded.files]
    about |= {
        "created": _utc(decoded.created_ms),
        "schema_id": decoded.schema_id,
        "spec_id": decoded.spec_id,
        "previous_position": decoded.previous_position,
        "position": decoded.position,
        "rows": decoded.row_count,
        "data_bytes": decoded.data_bytes,
    }
    if decoded.offsets:
        about["offsets"] = dict(decoded.offsets)
    if decoded.deletes is not None:
        deletes = [entry.data_file for entry in decoded.deletes.body.entries]
        about |= {"numbers": decoded.span, "deletes": sum(file.record_count for file in deletes)}
        files = [{"is": "data", **file} for file in files] + [
            {"is": "deletes", **_file(file, partition)} for file in deletes
        ]
    _show_files(about, files, as_json)


def _partition(view: "View", spec_id: int, values: "Sequence[Any]") -> str:
    """As in a path of Hive's; the values as they are where this table has no such partition."""
    from pyiceberg.typedef import Record

    try:
        schema = view.schema_for(spec_id)
        return view.specs[spec_id].partition_to_path(Record(*values), schema) if schema else "/".join(map(str, values))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # hostile values
        return "/".join(map(str, values))


def _file(file: "DataFile", partition: "Callable[[Sequence[Any]], str]") -> dict[str, Any]:
    return {
        "path": file.path,
        "format": file.file_format,
        "partition": partition(file.partition),
        "rows": file.record_count,
        "bytes": file.size_bytes,
    }


def _show_files(about: dict[str, Any], files: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        show_record({**about, "files": files}, as_json)
        return
    show_record(about, as_json)
    say("")
    show_rows(files, as_json)


def _show_rewrite(there: Opened, name: str, as_json: bool) -> None:
    from bookkeeper.commands.rewrites import verdict
    from bookkeeper.contract.rewrite import Rewrite

    place, read = _find_rewrite(there, name)
    about: dict[str, Any] = {"rewrite": name, "place": place}
    if not isinstance(read, Rewrite):
        show_record({**about, "verdict": f"{type(read).__name__}: {read}"}, as_json)
        return
    view = there.view()
    written_after = utc_now() - there.table.orphan_age / 2
    found = verdict(there.ledger, view, there.ledger.data_store(view), read, written_after)
    about |= {
        "verdict": found if isinstance(found, str) else f"{type(found).__name__}: {found}",
        "base": read.base.snapshot_id,
        "base_sequence": read.base.sequence_number,
        "schema_id": read.schema_id,
        "spec_id": read.spec_id,
        "partition": _partition(view, read.spec_id, read.partition_values),
        "rows": sum(row.record_count for row in read.added),
        "data_bytes": sum(row.size_bytes for row in read.added),
        "applied_deletes": list(read.base.applied_deletes),
    }
    new = [{"path": row.path, "is": "new", "rows": row.record_count, "bytes": row.size_bytes} for row in read.added]
    old = [{"path": path, "is": "replaced", "sequence": it.sequence_number} for path, it in read.replaced.items()]
    _show_files(about, [*new, *old], as_json)


def _find_rewrite(there: Opened, name: str) -> "tuple[str, Rewrite | BookkeeperError]":
    from bookkeeper.contract import pending_rewrites
    from bookkeeper.contract.rewrite import REWRITES
    from bookkeeper.contract.txlog_folder import REJECTED
    from bookkeeper.errors import Hold, Missing, NotPossible, RewriteCorrupt

    for place in (REWRITES, REJECTED):
        try:
            return place.strip("/"), pending_rewrites.read(there.folder, name, there.table.max_txlog_bytes, place)
        except Missing:
            continue
        except (RewriteCorrupt, Hold) as error:
            return place.strip("/"), error
    hint = "One that is committed is deleted; the summary of its snapshot names it (bookkeeper.rewrites)."
    raise NotPossible(f"{name} is neither pending nor rejected in {there.table.name}", hint=hint)


_UNFIT = "This table accepts no such txlog: delete it, or raise max-txlog-bytes if it is a txlog."


def _find(there: Opened, name: Any) -> tuple[str, bytes]:
    from bookkeeper.contract.txlog_folder import PENDING, REJECTED
    from bookkeeper.errors import Missing, NotPossible, Unfit

    for place in (PENDING, REJECTED):
        try:
            return place.strip("/"), there.folder.store.read(f"{place}{name}", there.table.max_txlog_bytes)
        except Missing:
            continue
        except Unfit as exc:
            raise NotPossible(f"{exc}: it is not read", hint=_UNFIT) from exc
    state = "it is committed" if there.view().marks.is_in(name) else "no mark says that it is committed"
    hint = "`bookkeeper pending` and `bookkeeper rejected` list the names there are."
    raise NotPossible(f"{name} is neither pending nor rejected in {there.table.name}; {state}", hint=hint)


def _judged(there: Opened, name: Any, data: bytes) -> "tuple[Txlog | None, str]":
    """The txlog, if it can be decoded, and whether this table accepts it, its files as they are now included."""
    from bookkeeper.contract import txlog as txlog_format
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.tick.card import is_strict
    from bookkeeper.tick.check_txlog import check, rules_of
    from bookkeeper.tick.intake import files_error

    view, decoded, verdict = there.view(), None, "fits the table"
    try:
        decoded = txlog_format.decode(name, data, there.table.max_txlog_bytes)
        strict = is_strict(there.table, there.folder.card())
        check(decoded, rules_of(view, strict), int(utc_now().timestamp() * 1000))
        if (wrong := files_error(there.ledger.data_store(view), decoded)) is not None:
            raise wrong
    except BookkeeperError as error:
        verdict = f"{type(error).__name__}: {error}"
    return decoded, "in the table already" if view.marks.is_in(name) else verdict


@click.command(cls=Command, short_help="Show the state of a table.")
@common
@click.pass_context
def status(context: click.Context, config: str | None, table: str | None, as_json: bool) -> None:
    """
    Show the state of a table: what is pending, held, rejected and committed. Exit code 3 when the table is halted.

    Consumers whose record or checkpoint cannot be read are named: expiry keeps snapshots for them, up to `max-hold`.

    Held txlogs stay pending until a person acts; the others go on. `bookkeeper pending` says which, and why.

    \b
    Example:
      bookkeeper status --table events --json
    """
    from bookkeeper.errors import Halt

    there = opened(config, table)
    halted = None
    try:
        record = _status(there)
    except Halt as error:
        halted = error
        waiting = there.folder.pending()  # some may be committed: the marks, which would say so, cannot be trusted
        record = {
            "table": there.table.name,
            "state": f"halted: {error}",
            "hint": error.hint,
            "pending": len(waiting),
            "oldest_pending": max((utc_now() - item.modified for item in waiting), default=None),
        }
    show_record(record, as_json)
    if halted is not None:
        context.exit(exit_code(halted))


def _status(there: Opened) -> dict[str, Any]:
    from bookkeeper.cli.consumers import stopped_members, unreadable_consumers
    from bookkeeper.contract import keyed
    from bookkeeper.contract import marks as marks_format
    from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites

    unread, stopped = unreadable_consumers(there), stopped_members(there)
    now, view = utc_now(), there.view()
    waiting = [item for item in there.folder.pending() if not view.marks.is_in(item.name)]
    held = _held_in(there, view, waiting) if waiting else {}
    last_ms = view.head.timestamp_ms if view.head else None
    return {
        "table": there.table.name,
        "identifier": there.table.identifier,
        "maintained_by": there.table.maintained_by,
        **_state(held),
        "pending": len(waiting),
        "held": len(held),
        "oldest_pending": max((now - item.modified for item in waiting), default=None),
        "pending_rewrites": len(pending_rewrites(there.folder)),
        "rejected": len(there.folder.rejected()),
        "rejected_rewrites": len(rejected_rewrites(there.folder)),
        **({"unreadable_consumers": unread} if unread else {}),
        **({"stopped_consumers": stopped} if stopped else {}),
        "last_commit": None if last_ms is None else _utc(last_ms),
        "snapshot": view.head.snapshot_id if view.head else None,
        "snapshots": len(view.metadata.snapshots),
        "data_files": view.total("total-data-files"),
        "rows": view.total("total-records"),
        "table_bytes": view.total("total-files-size"),
        **(deletes({}, there, view, now) if keyed.PROPERTY in view.metadata.properties else {}),
        "writers": len(view.marks.writers),
        "marks_bytes": len(marks_format.dumps(view.marks)),
        "location": view.metadata.location,
        "folder": there.folder.store.url,
    }


def _state(held: "Mapping[TxlogName, BookkeeperError]") -> dict[str, Any]:
    if not held:
        return {"state": "ok"}
    name, error = min(held.items())
    return {"state": f"held: {name}: {error}", "hint": error.hint or None}


def deletes(known: "dict[str, EqualityDeletes]", there: Opened, view: "View", now: "datetime") -> dict[str, Any]:
    """
    Of a keyed table: rows that position deletes hide, delete files, and those of them that wait to be folded.

    The latter is read from manifests; None where these cannot be read. `known`: what was read of them before, by table.
    """
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.folds.stats import EqualityDeletes

    name = there.table.name
    try:
        known[name] = known.get(name, EqualityDeletes()).refreshed(there.ledger, view)
        found = known[name].unfolded(view)
    except BookkeeperError:
        found = None
    return {
        "hidden_rows": view.total("total-position-deletes"),
        "delete_files": view.total("total-delete-files"),
        "unfolded": None if found is None else found.files,
        "oldest_unfolded": found.age(now) if found is not None and found.files else None,
    }


def _utc(ms: int) -> Any:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms after 1970"  # of a txlog that is no good anyway


@click.command(cls=Command, short_help="List every known incarnation of every writer.")
@common
def writers(config: str | None, table: str | None, as_json: bool) -> None:
    """
    List every known incarnation of every writer: its mark, holes, gap, when it was last seen, its position.

    Of a writer of which only the position is left, `last_seen` is a time no earlier than its last commit.

    \b
    Example:
      bookkeeper writers --table events
    """
    there = opened(config, table)
    marks, waiting = there.view().marks, there.folder.pending()
    rows = list[dict[str, Any]]()
    for name, known in marks.writers.items():
        if not known.incarnations:
            nothing = dict.fromkeys(("incarnation", "mark", "holes", "gap", "pending"))
            seen = {"last_seen": _utc(marks.seen_ms(name)), "position": known.position}
            rows.append({"writer": name, **nothing, **seen})
        for incarnation, mark in known.incarnations.items():
            run = (name, incarnation)
            sequences = [item.name.sequence for item in waiting if (item.name.writer, item.name.incarnation) == run]
            rows.append(
                {
                    "writer": name,
                    "incarnation": incarnation,
                    "mark": mark.last,
                    "holes": len(mark.holes),
                    "gap": _gap(mark.last, sequences),
                    "pending": sum(not mark.is_in(sequence) for sequence in sequences),
                    "last_seen": _utc(mark.seen_ms),
                    "position": known.position,
                }
            )
    if marks.channels:
        for row in rows:
            row["channels"] = len(marks.writer(row["writer"]).offsets)
    show_rows(rows, as_json, nothing="no writer is known")


def _gap(last: int, sequences: list[int]) -> int:
    """The number of sequences after the mark that are missing below the highest pending one."""
    later = [sequence for sequence in sequences if sequence > last]
    return max(later) - last - len(later) if later else 0


@click.command(cls=Command, short_help="Check the table against its files; reads only.")
@common
@click.option("--repair", is_flag=True, help="Show what would be repaired; with --yes repair it.")
@click.option("--yes", is_flag=True, help="With --repair: do it.")
@click.option("--deep", is_flag=True, help="Of a keyed table, look for keys that are live twice; reads all keys.")
@click.pass_context
def verify(
    context: click.Context, config: str | None, table: str | None, as_json: bool, repair: bool, yes: bool, deep: bool
) -> None:
    """
    Check the table against its folder and its files; reads only. Exit code 1 when something is wrong.

    A table that is halted because its history was changed is checked too, and so are pending rewrites. --repair does
    only what is safe: it deletes txlogs that are in the table and writes marks.json again. --deep holds the keys of all
    live rows in memory.

    \b
    Example:
      bookkeeper verify --table events --json
      bookkeeper verify --table events --repair
    """
    from bookkeeper.commands.verify import ERROR, INFO, Audit, Finding
    from bookkeeper.commands.verify import repair as repair_all
    from bookkeeper.commands.verify import verify as audit_of
    from bookkeeper.errors import HistoryChanged

    there = opened(config, table)
    try:
        view, halted = there.view(), list[Finding]()
    except HistoryChanged as error:
        if repair:
            raise  # pending txlogs may be all that is left of rows that were rolled back
        view, halted = there.view(accept_rollback=True), [Finding(ERROR, f"halted: {error}", there.table.identifier)]
    audit = Audit(view, there.folder, there.ledger, there.table)
    findings = halted + audit_of(audit)
    if deep:
        from bookkeeper.commands.verify_keys import double_keys

        findings += double_keys(audit)
    rows = [{"severity": item.severity, "what": item.what, "where": item.where} for item in findings]
    if repair:
        rows = [{"repair": item.repair, **row} for item, row in zip(findings, rows, strict=True) if item.repair]
    show_rows(rows, as_json, nothing=f"nothing to repair in {there.table.name}" if repair else "no problem was found")
    if repair and yes:
        say(f"{repair_all(audit, findings)} repaired")
    context.exit(int(any(item.severity != INFO for item in findings)))


COMMANDS = (pending, show, rejected, status, writers, verify)
