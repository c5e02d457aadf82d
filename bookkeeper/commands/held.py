"""
Which pending txlogs wait for a person, and for what: a tick's reading, check and plan, without its commit.
"""

from collections.abc import Mapping, Sequence

from bookkeeper.config.settings import Table
from bookkeeper.contract.delete_scope import is_unpartitioned
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder, Found
from bookkeeper.errors import Hold
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.tick.card import is_strict
from bookkeeper.tick.check_txlog import rules_of
from bookkeeper.tick.intake import Intake
from bookkeeper.tick.plan_batch import CheckedTxlogs, gaps, plan, resumed
from bookkeeper.tick.select import Limits, cut, in_order, writers_left
from bookkeeper.tick.writer_order import WriterOrder

#: the oldest txlogs that are looked at: a held one becomes one of them
MOST_TXLOGS, MOST_BYTES = 1000, 2**26


def held_txlogs(
    folder: Folder, ledger: Ledger, view: View, table: Table, waiting: Sequence[Found], now_ms: int
) -> Mapping[TxlogName, Hold]:
    """
    Why each of the `waiting` txlogs that are held is held; those behind it in its order are not among them.

    `waiting` are pending and not in the table. Their data files are not looked up. Raises StorageUnavailable.
    """
    by_writer = view.is_keyed
    limits = Limits(table.max_files, table.max_bytes, MOST_TXLOGS, MOST_BYTES)
    sized = [item for item in waiting if item.size <= table.max_txlog_bytes]
    names = cut(in_order(sized, by_writer), limits)
    intake = Intake(folder, table.max_txlog_bytes, sizes={item.name: item.size for item in sized})
    intake.read(names)
    intake.check(rules_of(view, is_strict(table, folder.card())), now_ms)
    missing, rejected = intake.look_for(gaps(names, view.marks))
    not_pending = missing | rejected
    marks = resumed(view.marks, names, intake.good, not_pending, folder.rejected)
    aside = [item.name for item in folder.rejected()] if by_writer else []
    checked = CheckedTxlogs(
        intake.good,
        intake.bad,
        not_pending,
        view.total("total-records"),
        view.total("total-files-size"),
        WriterOrder(view.marks, [item.name for item in waiting], aside) if by_writer else None,
        lambda: ledger.live_specs(view),
        frozenset(number for number, spec in view.specs.items() if not is_unpartitioned(spec)),
    )
    return plan(names, checked, marks, limits, writers_left(waiting, names)).held | intake.held
