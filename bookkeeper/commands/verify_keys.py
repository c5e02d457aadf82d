"""
`verify --deep`: keys of a keyed table that are live twice. Reads the key columns of every live file.

A row is live unless an equality delete with a larger sequence number names its key, or a position delete with one at
least as large names its place (Iceberg spec, "Scan Planning"). Holds the keys of all live rows in memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.manifest import ManifestContent

from bookkeeper.commands.verify import ERROR, WARNING, Audit, Finding
from bookkeeper.contract.delete_scope import DeleteFile, Scope
from bookkeeper.contract.keyed import keyed_of
from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import CannotRead
from bookkeeper.folds.keys import DeletedKeys
from bookkeeper.folds.read import KeyColumns, position_rows, read_files
from bookkeeper.folds.read_columns import read_columns
from bookkeeper.format.entries import EQUALITY_DELETES, DataFile, Entry
from bookkeeper.format.transforms import physical
from bookkeeper.ledger.live_files import LiveFile, live_files
from bookkeeper.stores.store import Store

#: keys that are shown
MOST_SHOWN = 20


@dataclass
class _Deletes:
    """The deletes of a table: of keys by scope, and of places by data file, each with its sequence number."""

    keys: Mapping[Scope, DeletedKeys]
    places: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def live(self, item: LiveFile, keys: pa.Table) -> pa.Table:
        """Those of the rows of a data file that are live."""
        number, key = item.entry.sequence_number or 0, file_key(item.entry.data_file.path)
        dead = {place for place, at in self.places.get(key, ()) if at >= number}
        for scope in item.scopes:
            if scope in self.keys:
                rows, numbers = self.keys[scope].deleted(keys)
                dead |= {*rows.filter(pc.greater(numbers, number)).to_pylist()}
        return keys.take(pa.array([row for row in range(keys.num_rows) if row not in dead], pa.int64()))


def double_keys(audit: Audit) -> list[Finding]:
    """
    A finding for each key with two live rows, up to 20 of them; none for a table that is not keyed. Raises Retry.
    """
    keyed = keyed_of(audit.view.metadata)
    if keyed is None:
        return []
    store, columns = audit.ledger.data_store(audit.view), KeyColumns(audit.view, keyed.key_ids)
    try:
        deletes = _deletes(audit, store, columns, keyed.key_ids)
        live = [columns.arrow.empty_table(), *_live_keys(audit, store, columns, deletes)]
    except CannotRead as error:
        return [Finding(WARNING, f"which keys are live is not known: {error}", audit.settings.identifier)]
    return [*_doubles(pa.concat_tables(live), audit.settings.identifier)]


def _doubles(keys: pa.Table, table: str) -> Iterator[Finding]:
    names = [f"k{number}" for number in range(keys.num_columns)]
    uuids = {name for name, kind in zip(names, keys.schema.types, strict=True) if isinstance(kind, pa.UuidType)}
    # Arrow groups no extension types.
    plain = [physical(column) if name in uuids else column for name, column in zip(names, keys.columns, strict=True)]
    counted = pa.table(plain, names=names).append_column("one", pa.repeat(pa.scalar(1), keys.num_rows))
    times = counted.group_by(names).aggregate([("one", "sum")])
    double = times.filter(pc.greater(times.column("one_sum"), 1))
    for row in double.slice(0, MOST_SHOWN).to_pylist():
        shown = ", ".join(
            f"{column} = {str(UUID(bytes=row[name])) if name in uuids else row[name]!r:.60}"
            for name, column in zip(names, keys.column_names, strict=True)
        )
        yield Finding(ERROR, f"{row['one_sum']} rows with {shown} are live, of {double.num_rows} such keys", table)


def _shown(value: Any, is_uuid: bool) -> Any:
    return str(UUID(bytes=value)) if is_uuid else value


def _files(audit: Audit, content: ManifestContent) -> Iterator[LiveFile]:
    return live_files(audit.ledger, audit.view, content)


def _deletes(audit: Audit, store: Store, columns: KeyColumns, key_ids: Sequence[int]) -> _Deletes:
    """All deletes; raises CannotRead for those by other columns than the keys."""
    scoped, places = dict[Scope, list[tuple[DeleteFile, Entry]]](), list[Entry]()
    for item in _files(audit, ManifestContent.DELETES):
        file = item.delete_file(audit.view)
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


def _live_keys(audit: Audit, store: Store, columns: KeyColumns, deletes: _Deletes) -> Iterator[pa.Table]:
    items = {item.entry.data_file.path: item for item in _files(audit, ManifestContent.DATA)}

    def names_in(file: DataFile, source: pa.Schema) -> list[str] | None:
        return columns.names_in(file, items[file.path].manifest.partition_spec_id, source)

    for file, data in read_columns(store, [item.entry.data_file for item in items.values()], names_in):
        if isinstance(data, CannotRead):
            raise data
        item = items[file.path]
        yield deletes.live(item, columns.of_data(file, item.manifest.partition_spec_id, data))


def _read(store: Store, entries: Iterable[Entry]) -> Iterator[tuple[DataFile, bytes]]:
    for file, data in read_files(store, [entry.data_file for entry in entries]):
        if isinstance(data, CannotRead):
            raise data
        yield file, data
