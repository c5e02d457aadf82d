"""
Partition specs as the configuration and `--partition` write them.
"""

import re
from collections.abc import Sequence

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from bookkeeper.errors import ConfigInvalid

_FIELD = re.compile(r"(\w+)\((?:(\d+)\s*,\s*)?([^()]+)\)|([^()]+)")


def partition_text(spec: PartitionSpec, schema: Schema) -> str:
    """
    The spec as `partition-by` writes it: `day(ts), bucket(16, key)`; `nothing` of one without fields.
    """
    texts = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or f"a column that was dropped ({field.name})"
        kind, _, width = str(field.transform).removesuffix("]").partition("[")
        inner = f"{width}, {column}" if width else column
        texts.append(column if kind == "identity" else f"{kind}({inner})")
    return ", ".join(texts) or "nothing"


def partition_spec(fields: Sequence[str], schema: Schema) -> PartitionSpec:
    """
    The spec of texts such as `day(ts)`, `bucket(16, key)`, `key`; raises ConfigInvalid.
    """
    return PartitionSpec(*[_partition_field(text, schema, 1000 + index) for index, text in enumerate(fields)])


def _partition_field(text: str, schema: Schema, field_id: int) -> PartitionField:
    match = _FIELD.fullmatch(text.strip())
    if not match:
        raise ConfigInvalid(f"partition-by {text!r}: day(column), bucket(16, column) or a column is allowed")
    kind, width, column = match[1] or "identity", match[2], match[3] or match[4]
    return _field(kind, width, column, schema, field_id, text)


def _field(kind: str, width: str | None, column: str, schema: Schema, field_id: int, text: str) -> PartitionField:
    try:
        source = schema.find_field(column)
        transform = parse_transform(f"{kind}[{width}]" if width else kind)
    except (ValueError, ValidationError) as exc:
        raise ConfigInvalid(f"partition-by {text!r}: {exc}") from exc
    if width == "0" or not transform.can_transform(source.field_type):
        raise ConfigInvalid(f"partition-by {text!r}: {source.field_type} columns cannot be partitioned by {kind}")
    suffix = "" if kind == "identity" else f"_{kind}" + (f"_{width}" if width else "")
    return PartitionField(source.field_id, field_id, transform, column.replace(".", "_") + suffix)
