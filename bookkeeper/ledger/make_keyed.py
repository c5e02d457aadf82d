"""
Makes a table keyed and keeps its delete spec. These commits add no snapshot, and are safe to repeat.

1. An unpartitioned spec is added beside the default one, where the deletes need one and the table has none.
2. Identifier fields and our property are set together.

A crash between both leaves a spec that nothing uses; the next run finds it and goes on. A commit whose answer was lost
is recognised by what the table says when it is loaded again.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.contract.keyed import PROPERTY, Keyed, dumps, is_within_keys, keyed_of
from bookkeeper.errors import NotPossible
from bookkeeper.manifests.fetch import Fetch
from bookkeeper.manifests.reader import Manifests, with_live_files


def set_keys(table: Table, wanted: Keyed, known: Keyed | None) -> bool:
    """
    Makes the table keyed as `wanted`, whose delete spec is chosen here; `known` is how it was. Returns whether it was
    changed: then load it again. Raises Retry.
    """
    specs = {spec.spec_id: spec for spec in table.metadata.partition_specs}
    before = None if known is None else known.delete_spec_id
    if before in specs and not specs[before].fields:
        return _set(table, replace(wanted, delete_spec_id=before))  # deletes without partitions are right everywhere
    if _covers_all(table, table.spec(), wanted):
        return _set(table, replace(wanted, delete_spec_id=table.spec().spec_id))
    with_spec, spec_id = _with_unpartitioned(table, before)
    return _set(with_spec, replace(wanted, delete_spec_id=spec_id)) or with_spec is not table


def _covers_all(table: Table, spec: PartitionSpec, keyed: Keyed) -> bool:
    """Whether deletes of this spec reach all rows of their keys, in every live data file."""
    head = table.metadata.current_snapshot()
    if not spec.fields or not is_within_keys(spec, keyed):
        return not spec.fields
    with catalogs.asked("read the manifest list"):
        lists = Manifests(Fetch.by(table.io), foreign=True).lists([head] if head is not None else [])
    data = (item for listed in lists for item in with_live_files(listed, ManifestContent.DATA))
    return all(item.partition_spec_id == spec.spec_id for item in data)


def mend_delete_spec(table: Table) -> bool:
    """
    Gives a keyed table another delete spec where its own is gone, or the table is partitioned otherwise by now.

    Another program may have cleaned up a spec that no file has. Returns whether the table was changed: then load it
    again. Raises TableUnusable and Retry.
    """
    keyed = keyed_of(table.metadata)
    if keyed is None or _is_usable(table.metadata, keyed):
        return False
    table, spec_id = _with_unpartitioned(table, keyed.delete_spec_id)
    _set(table, replace(keyed, delete_spec_id=spec_id))
    return True


def _is_usable(metadata: TableMetadata, keyed: Keyed) -> bool:
    for spec in metadata.partition_specs:
        if spec.spec_id == keyed.delete_spec_id:
            is_default = spec.spec_id == metadata.default_spec_id
            return not spec.fields or (is_default and is_within_keys(spec, keyed))
    return False


def _with_unpartitioned(table: Table, preferred_id: int | None) -> tuple[Table, int]:
    """The table with an unpartitioned spec, and the id of that; the id is `preferred_id` if the catalog lets us."""
    found = _unpartitioned(table.metadata)
    if found is None:
        ids = {spec.spec_id for spec in table.metadata.partition_specs}
        # Pending txlogs name the id that the spec had.
        spec_id = max(ids) + 1 if preferred_id is None or preferred_id in ids else preferred_id
        _commit(table, AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=spec_id)))
        table = catalogs.load_table(table.catalog, ".".join(table.name()), for_commit=True)
        found = _unpartitioned(table.metadata)  # a REST catalog may give it another id
    if found is None:
        raise NotPossible(f"{'.'.join(table.name())}: the catalog has not added an unpartitioned spec")
    return table, found


def _unpartitioned(metadata: TableMetadata) -> int | None:
    return min((spec.spec_id for spec in metadata.partition_specs if not spec.fields), default=None)


def _set(table: Table, keyed: Keyed) -> bool:
    updates: list[TableUpdate] = []
    if set(table.schema().identifier_field_ids) != set(keyed.key_ids):
        updates += _identified(table.metadata, keyed.key_ids)
    if table.metadata.properties.get(PROPERTY) != dumps(keyed):
        updates.append(SetPropertiesUpdate(updates={PROPERTY: dumps(keyed)}))
    if updates:
        _commit(table, *updates)
    return bool(updates)


def _identified(metadata: TableMetadata, key_ids: Sequence[int]) -> list[TableUpdate]:
    """Makes current the schema with the same columns and these identifier fields."""
    columns = metadata.schema().fields
    for schema in metadata.schemas:
        if schema.fields == columns and set(schema.identifier_field_ids) == set(key_ids):
            return [SetCurrentSchemaUpdate(schema_id=schema.schema_id)]
    new_id = max(schema.schema_id for schema in metadata.schemas) + 1
    made = Schema(*columns, schema_id=new_id, identifier_field_ids=list(key_ids))
    return [AddSchemaUpdate(schema_=made), SetCurrentSchemaUpdate(schema_id=-1)]


def _commit(table: Table, *updates: TableUpdate) -> None:
    metadata = table.metadata
    guards: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
    )
    catalogs.commit(table, guards, tuple(updates))
