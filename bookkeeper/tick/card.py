"""
The card of a table, made from one load of it and its settings.
"""

import json
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from bookkeeper.config.settings import Table
from bookkeeper.config.units import millis
from bookkeeper.contract import txlog
from bookkeeper.contract.card import Card
from bookkeeper.contract.column_requests import ADD, WIDEN
from bookkeeper.contract.file_names import STRICT
from bookkeeper.contract.keyed import keyed_of, to_json
from bookkeeper.format import bloom
from bookkeeper.format.remembered import remembered
from bookkeeper.ledger.view import View

_METRICS = "write.metadata.metrics."


def card_of(view: View, settings: Table, folder: str, file_names: str) -> Card:
    """
    What writers of this table must know; no credentials, ever. Raises TableUnusable.

    `file_names` is what the card said so far, and holds where the settings say nothing.
    """
    metadata = view.metadata
    properties = metadata.properties
    keyed = keyed_of(metadata)
    return Card(
        table=settings.identifier,
        table_uuid=view.uuid,
        folder=folder,
        location=metadata.location,
        data_path=view.data_path,
        table_schema=_json(metadata.schema()),
        specs=tuple(map(_json, metadata.partition_specs)),
        spec_id=metadata.default_spec_id,
        sort_order=_json(metadata.sort_order()),
        file_format=settings.file_format,
        compression=settings.compression,
        target_file_size=settings.target_file_size,
        roll_after_ms=millis(settings.roll_after),
        pending_limit=settings.pending_limit,
        orphan_age_ms=millis(settings.orphan_age),
        metrics={key.removeprefix(_METRICS): value for key, value in properties.items() if key.startswith(_METRICS)},
        parquet={key: value for key, value in properties.items() if key.startswith(bloom.PREFIX)},
        upserts={} if keyed is None else to_json(keyed),
        evolve={change: True for change in (ADD, WIDEN) if getattr(settings.evolve, change)},
        file_names=file_names if settings.file_names is None else settings.file_names,
        txlog_versions=tuple(range(1, txlog.VERSION + 1)),
    )


def is_strict(settings: Table, card: Card) -> bool:
    """
    Whether every data file must be called after its txlog.
    """
    return (settings.file_names or card.file_names) == STRICT


@remembered
def _json(part: Schema | PartitionSpec | SortOrder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(part.model_dump_json())
    return found
