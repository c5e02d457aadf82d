"""
Gives the columns of a new table their ids.
"""

from collections.abc import Sequence

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import NestedField

from bookkeeper.errors import ConfigInvalid


def with_new_ids(fields: Sequence[NestedField], source: str) -> Schema:
    """
    The schema of these columns, which `source` names; raises ConfigInvalid where two fields have one name.
    """
    try:
        # Nested fields bring ids of their own, which must not be those of other columns.
        return assign_fresh_schema_ids(Schema(*fields))
    except ValueError as exc:
        hint = "Iceberg calls the field b of a struct a `a.b`. Rename one of the two, or leave it out."
        raise ConfigInvalid(f"{source}: {exc}", hint=hint) from exc
