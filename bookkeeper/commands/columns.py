"""
The columns of a new table, as a schema file or the configuration says them.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from bookkeeper.commands.new_ids import with_new_ids
from bookkeeper.config.settings import Table
from bookkeeper.errors import ConfigInvalid

DEFAULT_SCHEMA = (
    {"name": "timestamp", "type": "timestamptz", "required": True},
    {"name": "key", "type": "string", "required": True},
    {"name": "value", "type": "binary", "required": False},
)


def schema_for(settings: Table, file: str | None = None, like: str | None = None) -> Schema:
    """
    The schema for `init`: of a JSON or TOML file, of a file of data, of the config, or the article's.

    Raises ConfigInvalid.
    """
    if like is not None:
        from bookkeeper.commands.infer.like import infer

        return infer(like).schema
    columns = _columns_in(file) if file is not None else settings.schema or DEFAULT_SCHEMA
    return schema_of(columns)


def schema_of(columns: Sequence[Mapping[str, Any]]) -> Schema:
    """
    The Iceberg schema of `{name, type, required}` rows; raises ConfigInvalid.
    """
    fields = []
    for number, column in enumerate(columns, start=1):
        if not isinstance(column, Mapping):
            raise ConfigInvalid(f"schema column {column!r}: a name and a type are needed")
        unknown = set(column) - {"name", "type", "required", "doc", "id"}
        if unknown or "name" not in column or "type" not in column:
            raise ConfigInvalid(f"schema column {dict(column)}: name and type are needed, required and doc allowed")
        try:
            fields.append(NestedField.model_validate({"required": False, **column, "id": number}))
        except (ValueError, TypeError) as exc:
            raise ConfigInvalid(f"schema column {column['name']!r} has the type {column['type']!r}: {exc}") from exc
    return with_new_ids(fields, "the schema")


def _columns_in(path: str) -> Sequence[Mapping[str, Any]]:
    try:
        text = Path(path).read_text("utf-8")
        data = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
        columns: Sequence[Mapping[str, Any]] = data if isinstance(data, list) else data.get("fields") or data["schema"]
    except OSError as exc:
        raise ConfigInvalid(
            f"{path} cannot be read: {exc.strerror}", hint="--schema FILE, the path of a file."
        ) from exc
    except (ValueError, KeyError, AttributeError) as exc:
        raise ConfigInvalid(
            f"{path}: a JSON list of columns, an Iceberg schema, or TOML [[schema]] is allowed"
        ) from exc
    return columns
