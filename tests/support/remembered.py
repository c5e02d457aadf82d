"""
What a run works out anew for each catalog and each file that it opens, worked out once: it opens tens of thousands.

What is remembered is a function of its text alone: the SQL of a statement, the schema that a file's header spells out.
"""

import json
from functools import lru_cache
from typing import Any

from pyiceberg.avro.file import AvroFileHeader
from pyiceberg.utils.schema_conversion import AvroSchemaConversion
from sqlalchemy import Connection, Engine, event
from sqlalchemy.util import LRUCache

_HEADER = "avro.schema"


class _Statements(LRUCache[Any, Any]):
    """The statements that any engine compiled, by what they say: SQLAlchemy's own cache ends with its engine."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_said(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_said(key), value)


def _said(key: Any) -> Any:
    dialect, *statement = key
    return (type(dialect), *statement)


def remember() -> None:
    """
    Of each SQLite catalog and each Avro file that is opened from now on.
    """
    compiled = _Statements(1000)

    def connected(connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            connection.execution_options(compiled_cache=compiled)

    event.listen(Engine, "engine_connect", connected)

    @lru_cache(1000)
    def schema(text: str) -> Any:
        return AvroSchemaConversion().avro_to_iceberg(json.loads(text))

    read = AvroFileHeader.get_schema
    AvroFileHeader.get_schema = lambda header: (  # type: ignore[method-assign]
        schema(header.meta[_HEADER]) if _HEADER in header.meta else read(header)
    )
