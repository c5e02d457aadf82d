"""
The table for dead letters: messages of a source that are no rows of its table. `dead-letters = true` adds it to the
configuration as `[tables.NAME__rejected]`, which may also be written there to set other options.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from bookkeeper.config.maintained import maintained
from bookkeeper.config.settings import Table
from bookkeeper.errors import NotPossible

SUFFIX = "__rejected"
#: source, channel and offset say which message it is; the last column is filled by the program, the others by Kafka
KEY = ("source", "channel", "offset")
SCHEMA = (
    {"name": "source", "type": "string", "required": True},
    {"name": "channel", "type": "string", "required": True},
    {"name": "offset", "type": "long", "required": True},
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "timestamp", "type": "timestamptz"},
    {"name": "key", "type": "binary"},
    {"name": "value", "type": "binary"},
    {"name": "headers", "type": "string"},
    {"name": "reason", "type": "string"},
    {"name": "rejected_at", "type": "timestamptz"},
)


def letters_of(table: Table) -> Table:
    """
    The section of a table's dead letters, as it is where the configuration says nothing of it.
    """

    def beside(place: str | None) -> str | None:
        return None if place is None else f"{place.rstrip('/')}{SUFFIX}"

    return Table(
        name=f"{table.name}{SUFFIX}",
        identifier=f"{table.identifier}{SUFFIX}",
        folder=beside(table.folder),
        location=beside(table.location),
        credentials=table.credentials,
        partition_by=(),
        schema=SCHEMA,
        key=KEY,
        roll_after=timedelta(seconds=1),
        reaper=table.reaper,
        maintained_by=table.maintained_by,
        service=table.service,
    )


def names_of_letters(tables: Iterable[Table]) -> set[str]:
    """
    The names of the sections of their dead letters.
    """
    return {letters_of(table).name for table in tables if table.dead_letters}


def check_keys(table: str, keys: Sequence[str]) -> None:
    """
    Raises NotPossible where a table of these keys is none of dead letters.
    """
    if tuple(keys) != KEY:
        what = f"{table} is no table of dead letters: its keys are {', '.join(keys) or 'none'}"
        raise NotPossible(what, hint="`dead-letters = true` in [tables.NAME] and `bookkeeper init` make one.")


def with_letters(tables: Mapping[str, Table]) -> dict[str, Table]:
    """
    These tables, and those of their dead letters that are not among them; raises ConfigInvalid like `maintained`.
    """
    added = {item.name: item for item in (letters_of(table) for table in tables.values() if table.dead_letters)}
    return {**tables, **{name: maintained(item) for name, item in added.items() if name not in tables}}


def only(tables: Mapping[str, Table]) -> Table | None:
    """
    The one table of a configuration, its dead letters aside; None where there are several, or none.
    """
    letters = names_of_letters(tables.values())
    found = [table for name, table in tables.items() if name not in letters]
    return found[0] if len(found) == 1 else None
