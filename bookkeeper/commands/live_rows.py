"""
The live rows of a keyed table, file by file.

A row is live unless an equality delete with a larger sequence number names its key, or a position delete with one at
least as large names its place (Iceberg spec, "Scan Planning"). Holds the deletes of the whole table in memory, and the
columns that are read of one file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.manifest import ManifestContent

from bookkeeper.contract.delete_scope import DeleteFile, Scope
from bookkeeper.contract.keyed import Keyed
from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import CannotRead
from bookkeeper.folds.keys import DeletedKeys
from bookkeeper.folds.read import KeyColumns, position_rows, read_files
from bookkeeper.folds.read_columns import read_columns
from bookkeeper.format.entries import EQUALITY_DELETES, DataFile, Entry
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import LiveFile, live_files
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store


@dataclass
class _Deletes:
    """The deletes of a table: of keys by scope, and of places by data file, each with its sequence number."""

    keys: Mapping[Scope, DeletedKeys]
    places: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def live(self, item: LiveFile, rows: pa.Table, keys: pa.Table) -> pa.Table:
        """Those of the rows of a data file, with these keys, that are live."""
        number, key = item.entry.sequence_number or 0, file_key(item.entry.data_file.path)
        dead = {place for place, at in self.places.get(key, ()) if at >= number}
        for scope in item.scopes:
            if scope in self.keys:
                found, numbers = self.keys[scope].deleted(keys)
                dead |= {*found.filter(pc.greater(numbers, number)).to_pylist()}
        return rows.take(pa.array([row for row in range(rows.num_rows) if row not in dead], pa.int64()))


def live_rows(ledger: Ledger, view: View, keyed: Keyed, field_ids: Sequence[int]) -> Iterator[pa.Table]:
    """
    The live rows of each data file: the columns with these field ids, the keys among them, by their names.

    Raises Retry, CannotRead, and CannotRead for equality deletes by other columns than the keys.
    """
    store, columns = ledger.data_store(view), KeyColumns(view, field_ids)
    names = [view.metadata.schema().find_field(number).name for number in keyed.key_ids]
    deletes = _deletes(ledger, view, store, KeyColumns(view, keyed.key_ids), keyed.key_ids)
    items = {item.entry.data_file.path: item for item in live_files(ledger, view, ManifestContent.DATA)}

    def names_in(file: DataFile, source: pa.Schema) -> list[str] | None:
        return columns.names_in(file, items[file.path].manifest.partition_spec_id, source)

    for file, data in read_columns(store, [item.entry.data_file for item in items.values()], names_in):
        if isinstance(data, CannotRead):
            raise data
        item = items[file.path]
        rows = columns.of_data(file, item.manifest.partition_spec_id, data)
        yield deletes.live(item, rows, rows.select(names))


def _deletes(ledger: Ledger, view: View, store: Store, columns: KeyColumns, key_ids: Sequence[int]) -> _Deletes:
    """All deletes; raises CannotRead for those by other columns than the keys."""
    scoped, places = dict[Scope, list[tuple[DeleteFile, Entry]]](), list[Entry]()
    for item in live_files(ledger, view, ManifestContent.DELETES):
        file = item.delete_file(view)
        if item.entry.content != EQUALITY_DELETES:
            places.append(item.entry)
        elif tuple(sorted(item.entry.equality_ids or ())) != tuple(key_ids):
            raise CannotRead(f"{item.entry.data_file.path[:300]} deletes by other columns than the keys")
        else:
            scoped.setdefault(file.scope, []).append((file, item.entry))
    found = _Deletes({scope: _deleted_keys(store, columns, files) for scope, files in scoped.items()})
    numbers = {entry.data_file.path: entry.sequence_number or 0 for entry in places}
    for data_file, data in _read(store, places):
        for path, place in zip(*position_rows(data_file, data).to_pydict().values(), strict=True):
            found.places.setdefault(file_key(path), []).append((place, numbers[data_file.path]))
    return found


def _deleted_keys(store: Store, columns: KeyColumns, files: Iterable[tuple[DeleteFile, Entry]]) -> DeletedKeys:
    numbers = {entry.data_file.path: file.sequence_number for file, entry in files}
    keys, of_rows = list[pa.Table](), list[pa.Array]()
    for file, data in _read(store, [entry for _, entry in files]):
        keys.append(columns.of_deletes(file, data))
        of_rows.append(pa.repeat(pa.scalar(numbers[file.path], pa.int64()), keys[-1].num_rows))
    return DeletedKeys(pa.concat_tables(keys), pa.concat_arrays(of_rows))


def _read(store: Store, entries: Iterable[Entry]) -> Iterator[tuple[DataFile, bytes]]:
    for file, data in read_files(store, [entry.data_file for entry in entries]):
        if isinstance(data, CannotRead):
            raise data
        yield file, data
