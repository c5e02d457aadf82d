"""
Decides which requests for columns are granted: all of one tick against one load of the table, in their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, NestedField, PrimitiveType

from bookkeeper.config.settings import Table
from bookkeeper.contract.column_requests import ADD, ColumnRequest, promotes, type_of
from bookkeeper.contract.keyed import keyed_of
from bookkeeper.contract.look_alikes import differing, shape
from bookkeeper.contract.retention_column import is_time, retention_column
from bookkeeper.errors import ColumnRefused, ConfigInvalid

#: bytes of all schemas in the table's metadata, which every commit and every load carries: none goes away, so neither a
#: restart nor an hour lets requests add more
MOST_SCHEMA_BYTES = 2 * 2**20
_NUMBERS = {"int", "long", "float", "double"}


@dataclass
class Plan:
    """
    The columns as the requests make them, how many are new and wider, and each request by name: settled by these
    columns, or refused.
    """

    columns: list[NestedField]
    added: int = 0
    widened: int = 0
    settled: list[str] = field(default_factory=list)
    refused: dict[str, ColumnRefused] = field(default_factory=dict)


def decide_columns(
    metadata: TableMetadata, requests: Mapping[str, ColumnRequest], settings: Table, may_add: int
) -> Plan:
    """
    Checks requests, by their names, against the table; `may_add`: so many columns may be added now.

    Where two ask for one column in different types, the wider type is taken if there is one, else the first.
    """
    checked = _Check(metadata, settings, may_add)
    for name, request in requests.items():
        try:
            checked.add(request) if request.change == ADD else checked.widen(request)
            checked.plan.settled.append(name)
        except ColumnRefused as why:
            checked.plan.refused[name] = why
    checked.plan.columns = list(checked.columns.values())
    return checked.plan


class _Check:
    def __init__(self, metadata: TableMetadata, settings: Table, may_add: int) -> None:
        self.metadata, self.settings, self.rules, self.may_add = metadata, settings, settings.evolve, may_add
        self.columns = {column.name: column for column in metadata.schema().fields}
        self.plan, self.widened = Plan([]), set[str]()
        #: bytes of all schemas, with that of this commit
        self.bytes = sum(map(_bytes, metadata.schemas)) + _bytes(metadata.schema())
        self.partition_names = {shape(item.name) for spec in metadata.partition_specs for item in spec.fields}

    def add(self, request: ColumnRequest) -> None:
        name, kind = request.name, type_of(request.type)
        there = self.columns.get(name)
        if there is not None:
            if there.field_id > self.metadata.last_column_id:
                wider = _wider(cast(PrimitiveType, there.field_type), kind)
                self.columns[name] = there.model_copy(update={"field_type": wider})
            return
        self._check_new(name)
        self._check_retention(name, kind)
        number = self.metadata.last_column_id + self.plan.added + 1
        column = NestedField(field_id=number, name=name, field_type=kind, required=False)
        self._take_bytes(_bytes(column))
        self.columns[name] = column
        self.plan.added += 1

    def _take_bytes(self, more: int) -> None:
        if self.bytes + more > MOST_SCHEMA_BYTES:
            size = f"{self.bytes + more} bytes in its metadata, more than {MOST_SCHEMA_BYTES}"
            hint = "Are these the names of fields, or data? Columns can be added by hand (ALTER TABLE)."
            raise ColumnRefused(f"the table's schemas would have {size}", hint=hint)
        self.bytes += more

    def _check_new(self, name: str) -> None:
        if not self.rules.add:
            raise ColumnRefused("this table adds no columns on request: evolve.add is false")
        alike = next((known for known in self.columns if known.casefold() == name.casefold()), None)
        if alike is not None:
            hint = f"Name the field {alike!r}, as the table does."
            raise ColumnRefused(f"{name!r} and the column {alike!r} differ in case only", hint=hint)
        twin = next((known for known in self.columns if shape(known) == shape(name)), None)
        if twin is not None:
            hint = f"Name the field {twin!r}, as the table does, or have the column added by hand (ALTER TABLE)."
            cause = f"{name!r} and the column {twin!r} differ in letters only that look alike: {differing(name, twin)}"
            raise ColumnRefused(cause, hint=hint)
        if shape(name) in self.partition_names:
            raise ColumnRefused(f"{name!r} is the name of a partition field", hint="Rename the field.")
        if len(self.columns) >= self.rules.most_columns:
            raise ColumnRefused(f"the table has {len(self.columns)} columns, evolve.most-columns is reached")
        if self.plan.added >= self.may_add:
            raise ColumnRefused(
                f"{self.rules.columns_per_hour} columns were added within an hour (evolve.columns-per-hour)",
                hint="Are these the names of fields, or data? Load the bad lines again later, or raise the limit.",
            )

    def _check_retention(self, name: str, kind: PrimitiveType) -> None:
        """A table without the column that `retention.keep` needs drops nothing; no writer may change that."""
        if self.settings.retention.keep is None or not is_time(kind):
            return
        try:
            retention_column(self.settings.retention, self.metadata.schema(), self.metadata.schemas)
        except ConfigInvalid as error:
            hint = "Mend [tables.NAME.retention] first: its `keep` has no column to compare."
            raise ColumnRefused(f"rows would be dropped by their {name!r}: {error}", hint=hint) from error

    def widen(self, request: ColumnRequest) -> None:
        name, kind = request.name, type_of(request.type)
        there = self.columns.get(name)
        if there is None or not isinstance(there.field_type, PrimitiveType):
            raise ColumnRefused(f"the table has no plain column {name!r} to widen")
        if promotes(kind, there.field_type):
            return
        if not self.rules.widen:
            raise ColumnRefused("this table widens no columns on request: evolve.widen is false")
        if not promotes(there.field_type, kind):
            hint = "Iceberg widens int to long, float to double, and decimals of the same scale."
            raise ColumnRefused(f"{name!r} is {there.field_type}, which never becomes {kind}", hint=hint)
        if there.field_id in self._fixed():
            raise ColumnRefused(f"{name!r} is a key, or rows are partitioned by it: it keeps its type")
        wider = there.model_copy(update={"field_type": kind})
        self._take_bytes(max(0, _bytes(wider) - _bytes(there)))
        self.columns[name] = wider
        self.widened.add(name)
        self.plan.widened = len(self.widened)

    def _fixed(self) -> set[int | None]:
        """Columns that keep their type. Retention's is one of times, which no rule widens."""
        keyed = keyed_of(self.metadata)
        sources = {item.source_id for spec in self.metadata.partition_specs for item in spec.fields}
        filled = {keyed.op_field_id, keyed.order_field_id} if keyed is not None else set[int | None]()
        return {*sources, *self.metadata.schema().identifier_field_ids, *filled}


def _bytes(part: Schema | NestedField) -> int:
    return len(part.model_dump_json().encode())


def _wider(one: PrimitiveType, other: PrimitiveType) -> PrimitiveType:
    if promotes(one, other):
        return other
    return DoubleType() if not promotes(other, one) and {str(one), str(other)} <= _NUMBERS else one
