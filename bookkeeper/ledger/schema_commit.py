"""
Changes the table's schema, in a commit of its own that touches no snapshot and no marks.

It is guarded by the table's uuid, the current schema and the last field id, so of two programs that change the schema
at once one is refused. A commit whose answer was lost is recognised by the table's columns when it is loaded again.
"""

from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
)
from pyiceberg.types import NestedField

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.ledger.view import View


def set_columns(view: View, columns: list[NestedField]) -> None:
    """
    Makes these the table's columns; ids of new ones are greater than any that the table has had. Raises Retry.
    """
    metadata = view.metadata
    schema = Schema(
        *columns,
        schema_id=max(known.schema_id for known in metadata.schemas) + 1,
        identifier_field_ids=metadata.schema().identifier_field_ids,
    )
    guards = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
    )
    catalogs.commit(view.table, guards, (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)))
