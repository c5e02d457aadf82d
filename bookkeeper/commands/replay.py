"""
Replay: a rejected txlog goes back to pending/ under its own name; its hole lets it in exactly once.

Only the bookkeeper removes the copy in rejected/, once the txlog is in. Refuses what could double rows.
"""

from datetime import datetime

from bookkeeper.config.settings import Table
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.contract.txlog_folder import REJECTED, Folder
from bookkeeper.errors import (
    IncarnationPruned,
    Missing,
    NotAFile,
    NotPossible,
    PositionTaken,
    TooLarge,
    TxlogTooLarge,
)
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import live_delete_files
from bookkeeper.ledger.load import load
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.removed_files import removed_files
from bookkeeper.ledger.view import View
from bookkeeper.stores.locations import normal
from bookkeeper.tick.card import is_strict
from bookkeeper.tick.check_txlog import check, rules_of
from bookkeeper.tick.writer_order import check_not_overtaken

_DO_NOT = "Run `bookkeeper verify`; do not replay it."
_COUNTS = "The bookkeeper removes it from rejected/ by itself. Rows that were discarded must be published again."
_DUPLICATE = "Rows of it that are in no other txlog must be published again, in files of their own."


def replay(folder: Folder, ledger: Ledger, table: Table, name: TxlogName, now: datetime, force: bool = False) -> None:
    """
    Copies a rejected txlog back to pending/, if the table can take it now.

    With `force` also a txlog of a pruned incarnation: first a commit opens a hole for it. A crash between that commit
    and the copy leaves a hole that the next replay uses. Raises NotPossible, a Reject, or Retry.
    """
    now_ms = epoch_ms(now)
    view, card, _ = load(ledger, folder)
    if view.marks.is_in(name):
        raise NotPossible(f"{name} counts as in the table: it was committed, or discarded", hint=_COUNTS)
    if folder.reason(name).get("error") == "DuplicatePath":
        # Its files need not be live any more: the rows that another txlog brought in may have been rewritten.
        raise NotPossible(f"{name} names files that another txlog brought in", hint=_DUPLICATE)
    txlog = _decoded(folder, table, name)
    check(txlog, rules_of(view, is_strict(table, card)), now_ms)
    if view.is_keyed:
        check_not_overtaken(view.marks, name)
    _check_position(txlog, view)
    _check_paths(txlog, ledger, view)
    if view.marks.is_pruned(name, txlog.created_ms):
        if not force or view.is_keyed:  # of a keyed table it may be older than what is in
            hint = IncarnationPruned.keyed_hint if view.is_keyed else ""
            raise IncarnationPruned(f"the marks of {name.writer}.{name.incarnation} were pruned", hint=hint)
        named = [item.name for item in (*folder.pending(), *folder.rejected())]
        MarksPublisher(ledger, folder).record(view, view.marks.opened(name, now_ms, named), f"replay {name}")
    folder.replay(name, table.max_txlog_bytes)


def _decoded(folder: Folder, table: Table, name: TxlogName) -> Txlog:
    try:
        data = folder.store.read(f"{REJECTED}{name}", table.max_txlog_bytes)
    except Missing as exc:
        raise NotPossible(f"{name} is not in rejected/", hint="`bookkeeper rejected` lists what is.") from exc
    except TooLarge as exc:
        raise TxlogTooLarge(str(exc)) from exc
    except NotAFile as exc:
        raise NotPossible(str(exc), hint="It holds no txlog: delete it.") from exc
    return txlog_format.decode(name, data, table.max_txlog_bytes)


def _check_position(txlog: Txlog, view: View) -> None:
    committed = view.marks.writer(txlog.name.writer).position
    if txlog.position is not None and txlog.previous_position != committed:
        raise PositionTaken(f"{txlog.name} continues from another position than the one that is committed now")


def _check_paths(txlog: Txlog, ledger: Ledger, view: View) -> None:
    wanted = {*txlog.every_path}
    deletes = (file.key for file in live_delete_files(ledger, view))
    for path in (*(normal(file.path) for file in ledger.live_files(view)), *deletes):
        if path in wanted:
            raise NotPossible(f"{path} is in the table already", hint=_DO_NOT)
    # A rewrite puts rows into other files, so a file that is gone may still have its rows in the table.
    removed = removed_files(ledger, view)
    for path in wanted & removed.keys():
        raise NotPossible(f"{path} was in the table until snapshot {removed[path]} took it out", hint=_DO_NOT)
