"""
The columns that a consumer asked for: found by their names once, and by their field ids from then on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from bookkeeper.errors import NotPossible


@dataclass(frozen=True, slots=True)
class Selection:
    """The field ids of the columns that were asked for, by the names that were given; all columns without any."""

    ids: dict[str, int]

    @classmethod
    def of(cls, table: Table, names: Iterable[str]) -> "Selection":
        """Raises NotPossible for a name that the table does not have now, with what became of one that it had."""
        schema, ids = table.schema(), dict[str, int]()
        for name in names:
            found = _id_of(schema, name)
            if found is None:
                raise _unknown(table.metadata, name, schema)
            ids[name] = found
        return cls(ids)

    def schema(self, table: Table) -> Schema:
        """
        The columns as the table has them now, under the names that were asked for; raises NotPossible for one that was
        dropped.
        """
        now = table.schema()
        if not self.ids:
            return now
        for name, number in self.ids.items():
            if now.find_column_name(number) is None:
                raise _unknown(table.metadata, name, now)
        asked = {number: name for name, number in self.ids.items() if "." not in name}
        chosen = prune_columns(now, set(self.ids.values()))
        return Schema(*(_named(field, asked.get(field.field_id, field.name)) for field in chosen.fields))


ALL = Selection({})


def _named(field: NestedField, name: str) -> NestedField:
    return field if field.name == name else field.model_copy(update={"name": name})


def _id_of(schema: Schema, name: str) -> int | None:
    try:
        return schema.find_field(name).field_id
    except ValueError:
        return None


def _unknown(metadata: TableMetadata, name: str, now: Schema) -> NotPossible:
    """What became of a column that the table does not have under this name."""
    number = next(filter(None, (_id_of(schema, name) for schema in reversed(metadata.schemas))), None)
    if number is None:
        known = ", ".join(field.name for field in now.fields)
        return NotPossible(f"columns: the table has no column {name}", hint=f"It has {known[:500]}.")
    later = now.find_column_name(number)
    if later is None:
        return NotPossible(f"columns: the column {name} was dropped from the table", hint=f"Leave {name} out.")
    return NotPossible(f"columns: the column {name} is called {later} now", hint=f"Ask for {later}.")
