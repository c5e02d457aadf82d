"""
A keyed table for tests, and a writer that is nothing but the contract: steps with equality deletes, by hand.

    lake = keyed_lake(tmp_path)
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a", 2: "b"}), Step(deletes=[1]))
    lake.tick()
    assert replayed(*steps) == what DuckDB, iceberg-rust or Spark read
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Envelope, StepFile, encode_steps
from bookkeeper.format.entries import DataFile
from bookkeeper.stores.open import open_store
from tests.support.lake import Clock, Lake, Writes

COLUMNS = (
    {"name": "id", "type": "long", "required": True},
    {"name": "value", "type": "string", "required": False},
    {"name": "op", "type": "string", "required": False},
    {"name": "seq", "type": "long", "required": False},
)
ID, VALUE, OP, SEQ = 1, 2, 3, 4


#: what makes a table keyed, for those that make lakes of their own
KEYED: dict[str, Any] = {
    "columns": COLUMNS,
    "partition_by": (),
    "key": ("id",),
    "op_column": "op",
    "order_column": "seq",
    "check_files": False,
}


def keyed_lake(root: Path, clock: Clock | None = None, columns: Any = COLUMNS, **settings: Any) -> Lake:
    """
    A keyed table on SQLite: `id` is the key, `op` and `seq` are the op- and the order-column; not partitioned.
    """
    more = {"op_column": "op", "order_column": "seq"} if columns is COLUMNS else {}
    return Lake(root, clock, columns, **{"partition_by": (), "key": ("id",), **more, **settings})


@dataclass(frozen=True)
class Step:
    """
    What one step does, each part in files of its own: rows put in the place of others, keys deleted, rows inserted.

    `shadow` (default: wherever the table has an op-column) writes a tombstone row for each deleted key.
    """

    upserts: Mapping[int, str | None] = field(default_factory=dict)
    deletes: Sequence[int] = ()
    writes: Mapping[int, str | None] = field(default_factory=dict)
    shadow: bool = True


class Steps(Writes):
    """One run of a writer of a keyed table whose key is `id`."""

    def __init__(self, lake: Lake, name: str = "k1", **more: Any) -> None:
        super().__init__(lake, name, **more)
        #: files written so far, and rows: the order of each
        self.files = self.order = 0

    def publish_steps(self, *steps: Step, **envelope: Any) -> TxlogName:
        """Publishes these steps in one txlog of version 2."""
        name, data = self.encoded_steps(*self.files_of(*steps), **envelope)
        self.lake.folder.publish(name, data)
        return name

    def publish_rows(self, rows: Mapping[int, str | None], **envelope: Any) -> TxlogName:
        """Publishes these rows, whose keys are new, in one txlog of version 1."""
        file = self.rows([{"id": key, "value": value, "op": "U"} for key, value in rows.items()])
        name, data = self.encoded([file], **envelope)
        self.lake.folder.publish(name, data)
        return name

    def files_of(self, *steps: Step) -> tuple[list[StepFile], list[StepFile]]:
        """The data files and the delete files of these steps, written and numbered."""
        data, deletes = list[StepFile](), list[StepFile]()
        for number, step in enumerate(steps, start=1):
            shadows = [{"id": key, "op": "D"} for key in step.deletes]
            if shadows and step.shadow and self.lake.folder.card().keyed.op_field_id is not None:  # type: ignore[union-attr]
                data.append(StepFile(self.rows(shadows), number - 1))
            if touched := sorted({*step.upserts, *step.deletes}):
                deletes.append(StepFile(self.equality_deletes(touched), number))
            live = [{"id": key, "value": value, "op": "U"} for key, value in {**step.upserts, **step.writes}.items()]
            if live:
                data.append(StepFile(self.rows(live), number))
        return data, deletes

    def rows(self, rows: Iterable[Mapping[str, Any]], **changes: Any) -> DataFile:
        """A data file of these rows, in a partition of its first row."""
        card = self.lake.folder.card()
        columns = [column.name for column in card.schema.fields]
        whole = []
        for row in rows:
            self.order += 1
            whole.append({name: {"seq": self.order, **row}.get(name) for name in columns})
        return replace(self._stored(whole, card.schema, card.schema, card.spec), **changes)

    def equality_deletes(self, keys: Sequence[int], spec: PartitionSpec | None = None, **changes: Any) -> DataFile:
        """An equality-delete file of these keys, of the table's delete spec."""
        card = self.lake.folder.card()
        assert card.keyed is not None
        if spec is None:
            specs = [PartitionSpec.model_validate(item) for item in card.specs]
            spec = next(item for item in specs if item.spec_id == card.keyed.delete_spec_id)
        schema = Schema(card.schema.find_field("id"))
        return replace(self._stored([{"id": key} for key in keys], schema, card.schema, spec), **changes)

    def _stored(self, rows: list[dict[str, Any]], schema: Schema, whole: Schema, spec: PartitionSpec) -> DataFile:
        self.files += 1
        out, data_path = io.BytesIO(), self.lake.folder.card().data_path
        # With the field ids in it: equality deletes are read by them.
        pq.write_table(pa.Table.from_pylist(rows, schema=schema_to_pyarrow(schema)), out)
        path = f"{data_path}/{self.name.incarnation}-{self.files:05d}.parquet"
        open_store(data_path).upload(path.removeprefix(data_path + "/"), out.getvalue())
        partition = [
            item.transform.transform(source.field_type)(rows[0].get(source.name))
            for item in spec.fields
            for source in [whole.find_field(item.source_id)]
        ]
        keys, column = [row["id"] for row in rows], schema.find_field("id")
        return DataFile(
            path=path,
            file_format="PARQUET",
            partition=tuple(partition),
            record_count=len(rows),
            size_bytes=out.tell(),
            value_counts={item.field_id: len(rows) for item in schema.fields},
            null_value_counts={item.field_id: sum(row[item.name] is None for row in rows) for item in schema.fields},
            lower_bounds={column.field_id: to_bytes(column.field_type, min(keys))},
            upper_bounds={column.field_id: to_bytes(column.field_type, max(keys))},
            split_offsets=(4,),
        )

    def encoded_steps(
        self, data: Sequence[StepFile], deletes: Sequence[StepFile], **envelope: Any
    ) -> tuple[TxlogName, bytes]:
        """The next txlog's name and bytes, of version 2."""
        self.name = self.name.at(envelope.pop("sequence", self.name.sequence + 1))
        card = self.lake.folder.card()
        how = card.keyed
        assert how is not None
        specs = {item["spec-id"]: PartitionSpec.model_validate(item) for item in card.specs}
        delete_spec = envelope.pop("delete_spec", specs.get(how.delete_spec_id))
        key_ids = envelope.pop("key_ids", how.key_ids)
        span = envelope.pop("span", 1 + max([item.number for item in (*data, *deletes)], default=0))
        created = int(self.lake.clock.now.timestamp() * 1000)
        about = replace(Envelope(self.name, card.table_uuid, created), **envelope)
        return self.name, encode_steps(about, card.schema, card.spec, data, delete_spec, deletes, key_ids, span)


def replayed(*steps: Step) -> dict[int, str | None]:
    """
    What a table holds after these steps, by key.
    """
    rows = dict[int, str | None]()
    for step in steps:
        for key in step.deletes:
            rows.pop(key, None)
        rows |= {**step.upserts, **step.writes}
    return rows


class Upserts(Steps):
    """Like `Writes`: each publish upserts a row for each of its values, under the keys 0, 1, ..."""

    def publish(self, *values: str, **more: Any) -> TxlogName:
        """One step, with one equality delete file."""
        return self.publish_steps(Step(upserts=dict(enumerate(values))))
