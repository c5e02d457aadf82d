"""A worker that is nothing but the contract, with the worker's signature: rows in, one file out, published."""

import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from bookkeeper.contract.pending_rewrites import publish
from bookkeeper.contract.rewrite import Base, encode
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.open import open_store
from reaper.compactor.group import Group
from reaper.compactor.worker import Rewritten
from reaper.context import ReaperContext
from tests.support.lake import described


@dataclass
class FakeWorker:
    """Rewrites groups; `fails` says what it raises for one. `groups` are those it was given."""

    fails: Callable[[Group], Exception | None] = lambda group: None
    groups: list[Group] = field(default_factory=list)

    def __call__(
        self,
        context: ReaperContext,
        table: Table,
        base: Base,
        group: Group,
        *,
        now: datetime,
        bytes_per_second: int | None,
        stopped: Callable[[], bool],
    ) -> Any:
        self.groups.append(group)
        error = self.fails(group)
        if error is not None:
            raise error
        rewrite_id, schema, spec = str(uuid.uuid4()), table.schema(), table.specs()[group.spec_id]
        rows = pa.concat_tables([pq.read_table(local_path(item.file.path)) for item in group.files])
        out = io.BytesIO()
        pq.write_table(rows, out)
        data_path = table.metadata.properties.get("write.data.path") or f"{table.metadata.location}/data"
        open_store(data_path).upload(f"{rewrite_id}-1.parquet", out.getvalue())
        file = described(f"{data_path}/{rewrite_id}-1.parquet", schema, spec, rows.to_pylist(), out.tell())
        new = [replace(file, partition=group.partition)]
        publish(Folder(context.folder), rewrite_id, encode(rewrite_id, base, schema, spec, new, group.files))
        return Rewritten(rewrite_id, 1, out.tell(), group.bytes, len(rows))
