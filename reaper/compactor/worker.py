"""
The embedded compactor: reads the files of one group, writes their rows anew, publishes the rewrite. It commits nothing.

1. It reads the replaced files, and writes the new ones through the store: each is durable before the next is begun. A
   crash leaves any part of them, whole or torn. Nothing names them: the orphan sweep deletes them by age.
2. It creates `rewrites/<id>.avro`, once. A crash before it leaves what step 1 leaves. From the moment the create was
   sent no new file is ever deleted here, whatever the answer was: the bookkeeper may have the rewrite, and may have
   committed it. A crash after it leaves the rewrite, which the bookkeeper commits or rejects.

An attempt that fails before step 2 deletes its own new files, as far as it can: no other program knows their names.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from bookkeeper.contract.names import new_incarnation
from bookkeeper.contract.pending_rewrites import publish
from bookkeeper.contract.rewrite import Base, encode
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ConfigInvalid, Retry
from reaper.compactor.group import CannotRewrite, Group
from reaper.compactor.new_files import NewFiles, target_bytes
from reaper.compactor.pacing import Pacing
from reaper.compactor.read_files import Files, check_readable
from reaper.context import ReaperContext


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A published rewrite: its id, new files and their bytes, bytes read, and rows."""

    id: str
    new_files: int
    new_bytes: int
    read_bytes: int
    rows: int


def rewrite(
    context: ReaperContext,
    table: Table,
    base: Base,
    group: Group,
    *,
    now: datetime,
    bytes_per_second: int | None,
    stopped: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    random: Callable[[int], bytes] = os.urandom,
) -> Rewritten:
    """
    Writes the rows of a group anew and publishes that; `table` is the load that `base` and the group come from.

    Reads and writes at most so many bytes a second. Raises CannotRewrite (the group is left as it is), Retry
    (StorageUnavailable, or Stopped once `stopped`: nothing is published), AlreadyExists when another object has the
    rewrite's name.
    """
    spec = _spec(table, group)
    if base.applied_deletes:
        raise CannotRewrite("it has delete files, which are not applied here")
    check_readable(group.files)
    rewrite_id = new_incarnation(int(now.timestamp() * 1000), random(10))
    pacing = Pacing(bytes_per_second, stopped, context.storage.pace.wait, clock)
    files, new = _begun(context, table, spec, group, rewrite_id, pacing)
    try:
        rows = files.rows(group.files, pacing)
        if group.last:
            new.add_sorted(rows)
        else:
            for part in rows:
                new.add(part)
        new.finish()
        data = _encoded(table, spec, base, group, rewrite_id, new)
        pacing.check()
    except Exception:
        _discard(context, new)
        raise
    publish(Folder(context.folder), rewrite_id, data)
    return Rewritten(rewrite_id, len(new.stored), new.bytes, group.bytes, new.rows)


def _spec(table: Table, group: Group) -> PartitionSpec:
    spec = table.specs().get(group.spec_id)
    if spec is None or len(spec.fields) != len(group.partition):
        raise CannotRewrite(f"the table has no partition spec {group.spec_id} of {len(group.partition)} fields")
    try:
        spec.partition_type(table.schema())
        for field in spec.fields:
            table.schema().find_type(field.source_id)
    except ValueError as exc:
        raise CannotRewrite(f"the table has dropped a column of partition spec {group.spec_id}") from exc
    return spec


def _begun(
    context: ReaperContext, table: Table, spec: PartitionSpec, group: Group, rewrite_id: str, pacing: Pacing
) -> tuple[Files, NewFiles]:
    """What reads the files of a group, and what writes the new ones; nothing is read or written yet."""
    settings, storage = context.settings, context.storage
    target = target_bytes(settings.compaction, table.metadata.properties)
    try:
        files = Files(table, spec, group.partition, storage)
        return files, NewFiles(table, spec, group, rewrite_id, settings.compression, target, storage, pacing)
    except (ConfigInvalid, ValueError, TypeError, NotImplementedError) as exc:
        raise CannotRewrite(f"the table's columns or properties are not understood: {exc}") from exc


def _encoded(table: Table, spec: PartitionSpec, base: Base, group: Group, rewrite_id: str, new: NewFiles) -> bytes:
    """The rewrite; it never says that rows are gone or new."""
    before = sum(item.file.record_count for item in group.files)
    if new.rows != before:
        raise CannotRewrite(f"{new.rows} rows were written, the replaced files have {before}")
    return encode(rewrite_id, base, table.schema(), spec, new.stored, group.files)


def _discard(context: ReaperContext, new: NewFiles) -> None:
    """Deletes the new files of a rewrite that was not published; what cannot be deleted now is an orphan."""
    with suppress(Retry):
        context.storage.delete(new.begun)
