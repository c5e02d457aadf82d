"""
What decoders found in bytes, kept for one world: its processes share one interpreter, and read the same objects again
and again. Only pure functions are here, each by all that its result depends on, so a world takes the same way without.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pkgutil import resolve_name
from typing import Any
from unittest import mock

from pydantic import BaseModel
from pydantic_core import from_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry

Key = Callable[..., Hashable]


class Same:
    """An object that equals no other one, and lives as long as this."""

    def __init__(self, it: Any) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it


#: the function, by where it is looked up, what its result depends on, and how it is given to more than one
PURE: dict[str, tuple[Key, Callable[[Any], Any]]] = {
    # the footer is in the data
    "bookkeeper.format.read_parquet.batch_rows": (lambda data, footer, names=None: (data, names and (*names,)), int),
    # so is the header
    "bookkeeper.format.manifest.decode": (
        lambda data, most, entries=None, header=None, column=None: (data, most, entries, column),
        lambda found: found,
    ),
    "bookkeeper.format.manifest_list.decode": (lambda data, most, known: (data, most), list),
    "bookkeeper.contract.txlog_folder.copy_from": (lambda data: data, lambda found: found),
    # pyiceberg's, by which other programs read
    "pyiceberg.avro.file.AvroFileHeader.get_schema": (lambda header: header.meta["avro.schema"], lambda found: found),
    "pyiceberg.avro.file.resolve_reader": (
        lambda written, read, types, enums: (Same(written), Same(read), *types.items(), *enums.items()),
        lambda found: found,
    ),
}


#: the lists in a metadata.json, and what pyiceberg makes of their items: 20 us for a snapshot, and most are as before
LISTS: dict[str, tuple[type[BaseModel], tuple[str, ...]]] = {
    "snapshots": (Snapshot, ("snapshot-id",)),
    "snapshot-log": (SnapshotLogEntry, ("snapshot-id", "timestamp-ms")),
    "metadata-log": (MetadataLogEntry, ("metadata-file",)),
    "schemas": (Schema, ("schema-id",)),
    "partition-specs": (PartitionSpec, ("spec-id",)),
}


class Metadata:
    """metadata.json, parsed once for the same bytes; items of its lists that are as before are taken from there."""

    def __init__(self) -> None:
        self._known = dict[bytes, TableMetadata]()
        self._items = {name: dict[Hashable, tuple[Any, BaseModel]]() for name in LISTS}

    def of(self, data: bytes) -> TableMetadata:
        if data not in self._known:
            raw = from_json(data)
            raw |= {name: [self._item(name, item) for item in raw.get(name, ())] for name in LISTS}
            self._known[data] = TableMetadataUtil.parse_obj(raw)
        return self._known[data]

    def read(self, byte_stream: Any, **how: Any) -> TableMetadata:
        return self.of(byte_stream.getvalue())

    def _item(self, name: str, raw: Any) -> BaseModel:
        model, keys = LISTS[name]
        at, items = tuple([raw[key] for key in keys]), self._items[name]
        if at not in items or items[at][0] != raw:
            items[at] = raw, model.model_validate(raw)
        return items[at][1]


@contextmanager
def shortcuts() -> Iterator[None]:
    """Until its end, each of these is called once for the same bytes; what one raises is raised anew."""
    with ExitStack() as stack:
        metadata = Metadata()
        stack.enter_context(mock.patch("tests.simulation.catalog.parsed", metadata.of))
        stack.enter_context(mock.patch("pyiceberg.serializers.FromByteStream.table_metadata", metadata.read))
        for where, (key, share) in PURE.items():
            found = _kept(resolve_name(where), key, share)
            stack.enter_context(mock.patch(where, found))
        yield


def _kept(make: Callable[..., Any], key: Key, share: Callable[[Any], Any]) -> Callable[..., Any]:
    known = dict[Hashable, Any]()

    @wraps(make)
    def found(*given: Any, **named: Any) -> Any:
        at = key(*given, **named)
        if at not in known:
            known[at] = make(*given, **named)
        return share(known[at])

    return found
