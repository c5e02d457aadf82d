"""A card to begin with."""

import json
import uuid
from dataclasses import replace
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bookkeeper.contract.card import Card


def card(**changes: Any) -> Card:
    """
    The card of an unpartitioned table with one column, but for `changes`.
    """
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    made = Card(
        table="demo.events",
        table_uuid=str(uuid.UUID(int=1)),
        folder=str(uuid.UUID(int=2)),
        location="file:///lake/events",
        data_path="file:///lake/events/data",
        table_schema=json.loads(schema.model_dump_json()),
        specs=(json.loads(UNPARTITIONED_PARTITION_SPEC.model_dump_json()),),
        spec_id=0,
        sort_order={"order-id": 0, "fields": []},
        file_format="parquet",
        compression="zstd",
        target_file_size=2**27,
        roll_after_ms=10_000,
        pending_limit=1000,
        orphan_age_ms=259_200_000,
        metrics={},
    )
    return replace(made, **changes)
