"""
The result of a task: the data files that it wrote, as the bytes of a txlog that is never published.

So it is proven as a txlog is, and bound by its name to one writer, run and sequence. A result comes from another
process and may be anything: what is checked here costs only this result. Bounds and partition tuples are checked by the
bookkeeper, as of every txlog.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bookkeeper.config.settings import MOST_TXLOG_BYTES
from bookkeeper.contract import txlog
from bookkeeper.contract.file_names import check_names
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import StepFile, Txlog
from bookkeeper.errors import EntryInvalid, PathRefused, UnknownSpec, WrongTable
from bookkeeper.format import manifest
from bookkeeper.format.entries import ADDED, DATA, EQUALITY_DELETES, DataFile, Entry
from bookkeeper.format.layout import parse_layout
from bookkeeper.stores.locations import join, normal
from writers.files.rolling_writer import NamedFiles, StoredFiles
from writers.files.upsert_steps import ORDER_BITS
from writers.files.write_spec import WriteSpec
from writers.publish.publisher import encoded

#: what follows `<writer>-<incarnation>-<sequence>-` in the name of a file of a task: its reservation, and 8 random
#: bytes for each time that the task was opened
_OF_TASK = re.compile(r"t([1-9][0-9]{0,8})-[0-9a-f]{16}-[0-9]{5,9}(?:-deletes)?\.(?:parquet|avro)")
_COUNTS = re.compile(rb"([0-9]{1,7}) ([0-9]{1,18})")


class Attempt(NamedTuple):
    """What wrote a file of a task: the reservation of the task, and random bytes of this opening of it."""

    reservation: int
    random: bytes

    def __str__(self) -> str:
        return f"t{self.reservation}-{self.random.hex()}-"


def encode(name: TxlogName, spec: WriteSpec, written: StoredFiles, now_ms: int) -> bytes:
    """
    The result of a task whose files are to be named by the txlog `name`.
    """
    counts = f"{written.orders} {written.operations}".encode()
    envelope = txlog.Envelope(name, spec.card.table_uuid, now_ms, counts)
    return encoded(envelope, spec, written.files)


def decode(name: TxlogName, spec: WriteSpec, reservation: int, result: Any) -> StoredFiles:
    """
    The files of a result, to be named by the txlog `name`; raises a BookkeeperError where it is not of this task.
    """
    found = _proven(name, spec, result)
    if {_reservation(name, path) for path in found.every_path} - {reservation}:
        raise EntryInvalid("it is of an earlier task() of this run, which was taken or discarded")
    if (found.schema_id, found.spec_id) != (spec.schema.schema_id, spec.card.spec_id):
        raise UnknownSpec(f"it has schema {found.schema_id} and partition spec {found.spec_id}, the task has others")
    _check_partition(found, spec)
    _check_deletes(found, spec)
    numbers = found.numbers or (1,) * len(found.rows)
    data = [_file(entry, spec, number) for entry, number in zip(found.body.entries, numbers, strict=True)]
    removed = () if found.deletes is None else zip(found.deletes.entries, found.deletes.numbers, strict=True)
    deletes = [_delete_file(entry, spec, number) for entry, number in removed]
    operations, orders = _counts(found, spec)
    return StoredFiles(NamedFiles(tuple(data), tuple(deletes)), operations, orders)


def _counts(found: Txlog, spec: WriteSpec) -> tuple[int, int]:
    """How many operations a result holds, and the first free number of the order-column."""
    counts = _COUNTS.fullmatch(found.position or b"")
    if counts is None or int(counts[1]) > 1 << ORDER_BITS:
        raise EntryInvalid("it does not say how many operations it holds")
    operations = int(counts[2])
    whole = operations == found.row_count if spec.keyed is None else (operations > 0) == bool(found.every_row)
    if not whole:
        raise EntryInvalid(f"it says {operations} operations, its {len(found.every_row)} files hold others")
    return operations, int(counts[1])


def locations(name: TxlogName, spec: WriteSpec, result: Any) -> list[str]:
    """
    The keys, below the data path, of a result's files: all are of a task of this txlog. Raises a BookkeeperError.
    """
    return [_key(path, spec) for path in _proven(name, spec, result).every_path]


def check_together(name: TxlogName, results: Sequence[StoredFiles]) -> None:
    """
    Raises DuplicatePath where two results name one file, and EntryInvalid where a txlog has no room for all of them.
    """
    paths = [item.file.path for one in results for item in one.files.data + one.files.deletes]
    if len(paths) > txlog.MOST_ENTRIES:
        raise EntryInvalid(f"{len(paths)} files; a txlog names at most {txlog.MOST_ENTRIES}")
    check_names(name, paths, strict=True)


def _proven(name: TxlogName, spec: WriteSpec, result: Any) -> Txlog:
    """The result as a txlog whose files are this one's, below the data path, and of tasks."""
    if not isinstance(result, bytes):
        raise EntryInvalid(f"it is {type(result).__name__}, not the bytes that TaskWriter.result gives")
    found = txlog.decode(name, result, MOST_TXLOG_BYTES)
    if found.table_uuid != spec.card.table_uuid:
        raise WrongTable(f"it was written for table {found.table_uuid[:60]}, this one is {spec.card.table_uuid}")
    paths = found.every_path
    check_names(name, paths, strict=True)
    for path in paths:
        _key(path, spec)
        if _reservation(name, path) is None:
            raise PathRefused(f"{path[:300]} is not named like a file of a task")
    return found


def _key(path: str, spec: WriteSpec) -> str:
    root = normal(spec.card.data_path).rstrip("/") + "/"
    if not path.startswith(root):
        raise PathRefused(f"{path[:300]} is outside of the table's data path {spec.card.data_path}")
    return path[len(root) :]


def _reservation(name: TxlogName, path: str) -> int | None:
    """The reservation in the name of a file of a task; the name begins with the txlog's prefix."""
    prefix = f"{name.writer}-{name.incarnation}-{name.sequence:010d}-"
    found = _OF_TASK.fullmatch(path[path.rindex("/") + 1 :].removeprefix(prefix))
    return int(found[1]) if found else None


def _respelled(file: DataFile, spec: WriteSpec) -> DataFile:
    """With the location as the writer itself spells it; raises EntryInvalid."""
    if file.record_count <= 0 or file.size_bytes <= 0:
        raise EntryInvalid(f"{file.path[:300]}: {file.record_count} records in {file.size_bytes} bytes")
    counts = (file.column_sizes, file.value_counts, file.null_value_counts, file.nan_value_counts)
    counted = set[int]().union(*counts, file.lower_bounds, file.upper_bounds)
    if unknown := counted - {leaf.field_id for leaf in spec.leaves}:
        raise EntryInvalid(f"{file.path[:300]}: statistics for column {min(unknown)}, which the table does not have")
    return replace(file, path=join(spec.card.data_path, _key(normal(file.path), spec)))


def _check_partition(found: Txlog, spec: WriteSpec) -> None:
    written = manifest.header(spec.schema, spec.card.spec)["avro.schema"]
    if found.partition != parse_layout(written).partition:
        raise UnknownSpec("its partition tuples are not those of the table's partition spec")


def _check_deletes(found: Txlog, spec: WriteSpec) -> None:
    if found.deletes is None:
        return
    keyed = spec.keyed
    if keyed is None or keyed.spec is None:
        raise EntryInvalid("it deletes rows by key, which this table does not take")
    written = manifest.header(spec.schema, keyed.spec)["avro.schema"]
    if (found.deletes.spec_id, found.deletes.partition) != (keyed.spec.spec_id, parse_layout(written).partition):
        raise UnknownSpec(f"its deletes have partition spec {found.deletes.spec_id}, not {keyed.spec.spec_id}")
    if set(found.deletes.equality_ids) != {keyed.key_ids}:
        raise EntryInvalid(f"its deletes are not by the keys of the table, {keyed.key_ids}")


def _file(entry: Entry, spec: WriteSpec, number: int) -> StepFile:
    file = entry.data_file
    relative = entry.sequence_number
    if entry != Entry(ADDED, None, relative, None, DATA, None, None, file) or relative not in (None, number):
        raise EntryInvalid(f"{file.path[:300]} is not the entry of a new data file")
    if file.file_format.upper() != spec.card.file_format.upper():
        raise EntryInvalid(f"{file.path[:300]}: file format {file.file_format[:40]}, not {spec.card.file_format}")
    return StepFile(_respelled(file, spec), number)


def _delete_file(entry: Entry, spec: WriteSpec, number: int) -> StepFile:
    file = entry.data_file
    if entry != Entry(ADDED, None, number, None, EQUALITY_DELETES, entry.equality_ids, None, file):
        raise EntryInvalid(f"{file.path[:300]} is not the entry of a new delete file")
    return StepFile(_respelled(file, spec), number)
