"""Txlogs that no honest writer would publish, made from one that is fine."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bookkeeper.contract.names import TxlogName
from bookkeeper.format import avro, manifest
from bookkeeper.format.entries import DataFile, Entry, added
from tests.support.lake import Writes

Forged = tuple[TxlogName | str, bytes]


def with_header(writer: Writes, key: str, **header: bytes | None) -> Forged:
    """A txlog of one good file, some of our header keys changed or (None) left out."""
    name, data = writer.encoded([writer.file([key])])
    found = avro.decode(data, 2**26)
    meta = dict(found.meta)
    for option, value in header.items():
        full = option.replace("_", "-").replace("--", ".")
        meta.pop(full, None)
        if value is not None:
            meta[full] = value
    return name, avro.encode(meta, found.blocks)


def with_file(writer: Writes, key: str, **changes: Any) -> Forged:
    """A txlog of one file, described otherwise than it is."""
    return writer.encoded([writer.file([key], **changes)])


def with_entry(writer: Writes, key: str, **changes: Any) -> Forged:
    """A txlog of one entry that is not what an append may hold."""
    name, data = writer.encoded([writer.file([key])])
    (entry,) = manifest.decode(data, 2**26).entries
    return name, manifest.encode(avro.decode(data, 2**26).meta, [replace(entry, **changes)])


def with_data(change: Callable[[bytes], bytes]) -> Callable[[Writes, str], Forged]:
    """A txlog of one good file whose bytes were changed."""

    def forge(writer: Writes, key: str) -> Forged:
        name, data = writer.encoded([writer.file([key])])
        return name, change(data)

    return forge


def elsewhere(path: str) -> Callable[[Writes, str], Forged]:
    """A txlog whose file is named by `path`; `{data}` stands for the table's data path, `{run}` for its incarnation."""

    def forge(writer: Writes, key: str) -> Forged:
        data = writer.lake.folder.card().data_path
        return with_file(
            writer, key, path=path.format(data=data, table=data.removesuffix("/data"), run=writer.name.incarnation)
        )

    return forge


def twice(writer: Writes, key: str) -> Forged:
    """A txlog that names one file under two spellings."""
    file: DataFile = writer.file([key])
    return writer.encoded([file, replace(file, path=file.path.removeprefix("file://"))])


def twice_in_another_case(writer: Writes, key: str) -> Forged:
    """A txlog that names two files, which are one on a disk that ignores case."""
    file: DataFile = writer.file([key])
    folder, _, name = file.path.rpartition("/")
    return writer.encoded([file, replace(file, path=f"{folder}/{name.replace('parquet', 'PARQUET')}")])


def entries(files: list[DataFile]) -> list[Entry]:
    """The entries of a good txlog."""
    return [added(file) for file in files]
