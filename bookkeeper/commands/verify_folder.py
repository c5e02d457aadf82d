"""
`verify`: the txlog folder against the marks: what is missing, left over, rejected, or waits in vain.
"""

from collections.abc import Iterator

from bookkeeper.commands.audit import ERROR, INFO, WARNING, Audit, Finding, snapshot_name
from bookkeeper.commands.rewrites import IN_TABLE, read_pending, verdict
from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName, started_ms
from bookkeeper.contract.rewrite import Rewrite
from bookkeeper.contract.txlog_folder import REJECTED, Found
from bookkeeper.errors import BookkeeperError, RewriteRejected
from bookkeeper.history.main_history import ancestors
from bookkeeper.ledger.load import is_older
from bookkeeper.ledger.view import txlogs_of
from bookkeeper.tick.plan_batch import gaps


def _marks_behind(audit: Audit) -> Iterator[Finding]:
    marks = audit.view.marks
    for snapshot in ancestors(audit.view.metadata):
        for first, last in txlogs_of(snapshot):
            known = marks.mark(last)
            if known is None:
                continue  # pruned or forgotten
            if not marks.is_in(last) or not marks.is_in(first):
                what = f"the snapshot holds {first} to {last.sequence}, the marks do not say so"
                yield Finding(ERROR, what, snapshot_name(snapshot))


def _leftovers(audit: Audit) -> Iterator[Finding]:
    for item in audit.folder.pending():
        if not audit.view.marks.is_in(item.name):
            continue
        if _is_ahead(audit, item):
            what = "the marks say it is in, but the table has none of its files (retention may have dropped them)"
            yield Finding(WARNING, what, str(item.name))
        else:
            yield Finding(INFO, "it is in the table and still pending", str(item.name), "delete it")


def _is_ahead(audit: Audit, item: Found) -> bool:
    most = audit.settings.max_txlog_bytes
    data = audit.folder.read([item.name], {item.name: most})[item.name]
    if not isinstance(data, bytes):
        return False
    try:
        paths = txlog_format.decode(item.name, data, most).every_path
    except BookkeeperError:
        return False
    # A rewrite puts rows into other files, a fold replaces delete files: one that was taken out was in.
    # One without files has offsets alone, of which the table does not say where they came from.
    return bool(paths) and {*paths}.isdisjoint({*audit.times, *audit.removed})


def _missing(audit: Audit) -> Iterator[Finding]:
    """Missing txlogs: n was durable before n + 1 was written, so they were deleted by another program."""
    listed = [item.name for item in audit.folder.pending()]
    marks = audit.later().view.marks
    waiting = [name for name in listed if not marks.is_in(name) and not _may_be_pruned(marks, name)]
    holes = [
        TxlogName(writer, incarnation, hole)
        for writer, known in marks.writers.items()
        for incarnation, mark in known.incarnations.items()
        for hole in mark.holes
    ]
    for name in sorted({*gaps(waiting, marks), *holes}.difference(listed)):
        if not (audit.folder.exists(name) or audit.folder.exists(name, REJECTED)):
            what = (
                "it was published, and is neither in the table nor pending nor rejected: it was deleted, its rows "
                "are lost unless its writer wrote them again"
            )
            yield Finding(WARNING, what, str(name))


def _may_be_pruned(marks: Marks, name: TxlogName) -> bool:
    """Whether its mark was pruned, so that it is unknown how far its incarnation was."""
    return marks.mark(name) is None and started_ms(name.incarnation) < marks.pruned_before_ms


def _marks_copy(audit: Audit) -> Iterator[Finding]:
    view, copy = audit.view, audit.folder.marks()
    if view.marks.snapshot is None or (copy is not None and copy.marks == view.marks):
        return
    # A commit may have been made since the table was loaded, and its copy is written right after it.
    now = audit.later().view
    if copy is not None and copy.table_uuid == view.uuid and copy.sequence_number > view.metadata.last_sequence_number:
        agrees = not is_older(now, copy)
    else:
        again = audit.folder.marks()
        agrees = again is not None and (again.marks == now.marks or again != copy)
    if not agrees:
        yield Finding(WARNING, "marks.json is not what the table says", audit.folder.store.url, "write it again")


def _rejected(audit: Audit) -> Iterator[Finding]:
    for item in audit.folder.rejected():
        why = audit.folder.reason(item.name).get("reason", "for an unknown reason")
        yield Finding(WARNING, f"rejected and not looked after: {why}", str(item.name))


def _rewrites(audit: Audit) -> Iterator[Finding]:
    """Pending rewrites that will not be committed; no row is lost by that."""
    now: Audit | None = None
    for item, read in read_pending(audit.folder, audit.settings.max_txlog_bytes):
        now = now or audit.later()  # after the listing: a rewrite may know newer snapshots than an older view
        found = _verdict(now, read) if isinstance(read, Rewrite) else read
        if isinstance(found, RewriteRejected):
            what = f"the rewrite will be rejected, and planned anew ({type(found).__name__}): {found}"
            yield Finding(INFO, what, item.name)
        elif isinstance(found, BookkeeperError):
            yield Finding(WARNING, f"the rewrite waits: {found}", item.name)
        elif found == IN_TABLE:
            yield Finding(INFO, "the rewrite is in the table and still pending", item.name)


def _verdict(audit: Audit, rewrite: Rewrite) -> BookkeeperError | str:
    store = audit.view.data_store(audit.open_store or audit.ledger.open_store)
    written_after = audit.ledger.clock() - audit.settings.orphan_age / 2
    return verdict(audit.ledger, audit.view, store, rewrite, written_after)


CHECKS = (_marks_behind, _leftovers, _missing, _marks_copy, _rejected, _rewrites)
