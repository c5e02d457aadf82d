"""
`bookkeeper show`: one txlog or rewrite. It only reads.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import Opened, moment, opened, txlog_name, utc_now
from bookkeeper.console import completing
from bookkeeper.console.errors import Command
from bookkeeper.console.options import common
from bookkeeper.console.output import say, show_record, show_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bookkeeper.contract.rewrite import Rewrite
    from bookkeeper.contract.txlog import Txlog
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.format.entries import DataFile
    from bookkeeper.ledger.view import View


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
        "created": moment(decoded.created_ms),
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


COMMANDS = (show,)
