"""
Live delete files that no fold can read: `verify` names them, and `bookkeeper drop-delete-file` takes one out.

Versions that did not look at footers let them in, and other programs may. An equality delete file that cannot be read
stays as it is: others of its scope are folded, and it goes on applying, in those readers that can read it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent
from pyiceberg.types import NestedField

from bookkeeper.contract.rewrite import file_key
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import CannotRead, NotPossible, Reject
from bookkeeper.folds.select import LiveDelete, live_deletes
from bookkeeper.format.entries import EQUALITY_DELETES, Entry
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import live_files
from bookkeeper.ledger.load import load
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.check_delete_files import footer_error, read_footers


def odd_footers(view: View, store: Store, keys: Iterable[tuple[str, Entry]]) -> dict[str, Reject]:
    """
    Of equality delete files, given by their keys in the store, those that by their footers cannot be read, and why.

    Those that the storage does not show are left out. Raises StorageUnavailable as the store does.
    """
    looked = {key: entry for key, entry in keys if entry.content == EQUALITY_DELETES}
    parquet = {key: entry for key, entry in looked.items() if entry.data_file.file_format.upper() == "PARQUET"}
    found = dict[str, Reject]()
    for key, footer in read_footers(store, {key: e.data_file.size_bytes for key, e in parquet.items()}).items():
        columns = _columns(view, parquet[key])
        if columns and isinstance(footer, bytes | CannotRead):
            error = footer_error(parquet[key], footer, columns, alone=False)
            if error is not None:
                found[key] = error
    return found


def _columns(view: View, entry: Entry) -> Sequence[NestedField]:
    fields = {field.field_id: field for field in view.metadata.schema().fields}
    return [fields[number] for number in entry.equality_ids or () if number in fields]


@dataclass(frozen=True, slots=True)
class OddDelete:
    """A live delete file that cannot be read: why, and the live data files and their rows that it may apply to."""

    live: LiveDelete
    why: str
    data_files: int
    rows: int


def odd_delete(ledger: Ledger, view: View, path: str) -> OddDelete:
    """
    The live delete file at `path`, a location or a path below the table's data path.

    Raises NotPossible where there is none, or where it can be read: a fold applies such a one. Raises Retry where the
    storage does not answer now, which says nothing of the file.
    """
    wanted = {file_key(path), file_key(f"{view.data_path.rstrip('/')}/{path}")}
    found = [item for _, _, item in live_deletes(ledger, view) if item.file.key in wanted]
    if len(found) != 1:
        times = f"lists it {len(found)} times" if found else "has no such delete file"
        raise NotPossible(f"{path[:300]}: {ledger.identifier} {times}", hint="`bookkeeper verify` names odd files.")
    why = _why_unreadable(view, ledger.data_store(view), found[0].entry)
    if not why:
        raise NotPossible(
            f"{path[:300]} can be read, so a fold applies it", hint="`bookkeeper fold` does that at once."
        )
    files = [*_applies_to(ledger, view, found[0])]
    return OddDelete(found[0], why, len(files), sum(files))


def drop(folder: Folder, publisher: MarksPublisher, odd: OddDelete) -> View:
    """
    The table without this delete file. Raises Retry: CommitConflict where another commit was first, and FoldOutdated
    where the file is not live any more.

    The snapshot is a `delete`, as that of a fold: streams have had every row when it was written, and pass over it. A
    crash before the commit leaves manifests that nothing names, for the orphan sweep; one after it leaves a marks.json
    that the next tick mends.
    """
    return publisher.drop_delete_file(load(publisher.ledger, folder)[0], odd.live.file)


def _why_unreadable(view: View, store: Store, entry: Entry) -> str:
    """Why no fold can read the file, "" if one can; the whole file is read."""
    from bookkeeper.folds.read import KeyColumns, position_rows, read_files

    ((file, data),) = read_files(store, [entry.data_file])
    try:
        if isinstance(data, CannotRead):
            raise data
        if entry.content != EQUALITY_DELETES:
            position_rows(file, data)
        elif len(columns := _columns(view, entry)) == len(entry.equality_ids or ()) > 0:
            KeyColumns(view, [column.field_id for column in columns]).of_deletes(file, data)
    except CannotRead as exc:
        return str(exc)
    return ""


def _applies_to(ledger: Ledger, view: View, item: LiveDelete) -> Iterable[int]:
    """The rows of each live data file that it may apply to."""
    for found in live_files(ledger, view, ManifestContent.DATA):
        if (found.entry.sequence_number or 0) <= item.file.largest_number and item.file.scope in found.scopes:
            yield found.entry.data_file.record_count
