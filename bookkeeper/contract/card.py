"""
card.json: what a writer must know of the table, so that it needs no catalog and no catalog credentials.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, get_origin

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from bookkeeper.contract import keyed
from bookkeeper.contract.keyed import Keyed
from bookkeeper.errors import WrongFolder

VERSION = 1


@dataclass(frozen=True)
class Card:
    """
    The table as writers see it. `table_schema` and `specs` are Iceberg's JSON; ages in milliseconds, sizes in bytes.
    """

    table: str
    table_uuid: str
    folder: str
    location: str
    data_path: str
    table_schema: dict[str, Any]
    specs: tuple[dict[str, Any], ...]
    spec_id: int
    sort_order: dict[str, Any]
    file_format: str
    compression: str
    target_file_size: int
    roll_after_ms: int
    pending_limit: int
    orphan_age_ms: int
    metrics: dict[str, str]
    #: table properties that Parquet files are written by; the key is not there where there are none
    parquet: dict[str, str] = field(default_factory=dict)
    #: of a keyed table, what its property says; the key is not there where it is append-only
    upserts: dict[str, Any] = field(default_factory=dict)
    #: the changes of the schema that writers may ask for, `add` and `widen`; the key is not there where there are none
    evolve: dict[str, bool] = field(default_factory=dict)
    #: `strict` where each data file must be called after its txlog; the key is not there in cards of older versions
    file_names: str = ""
    #: the versions of txlogs that the bookkeeper knows; the key is not there in cards of older ones, which know 1 and 2
    txlog_versions: tuple[int, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        """The current Iceberg schema."""
        return Schema.model_validate(self.table_schema)

    @cached_property
    def spec(self) -> PartitionSpec:
        """The default partition spec."""
        return next(PartitionSpec.model_validate(spec) for spec in self.specs if spec["spec-id"] == self.spec_id)

    @cached_property
    def order(self) -> SortOrder:
        """The default sort order."""
        return SortOrder.model_validate(self.sort_order)

    def takes(self, change: str) -> bool:
        """Whether writers may ask for this change of the schema."""
        return self.evolve.get(change) is True

    @cached_property
    def keyed(self) -> Keyed | None:
        """How the table is keyed; None when it is append-only."""
        return keyed.parse(self.upserts, self.schema) if self.upserts else None


AGAIN = "Delete it, then `bookkeeper init` writes it again."
_OFTEN_EMPTY: dict[str, Any] = {"parquet": {}, "upserts": {}, "evolve": {}, "file-names": "", "txlog-versions": ()}
_TUPLES = ("specs", "txlog_versions")
_KEYS = {name: name.replace("_", "-") for name in Card.__dataclass_fields__} | {"table_schema": "schema"}


def dumps(card: Card) -> bytes:
    """
    The bytes of card.json; equal cards give equal bytes.
    """
    data = {"version": VERSION} | {key: getattr(card, name) for name, key in _KEYS.items()}
    for key in _OFTEN_EMPTY:
        if not data[key]:
            del data[key]  # as older versions write it
    return json.dumps(data, indent=1, sort_keys=True).encode() + b"\n"


@lru_cache(maxsize=64)
def loads(data: bytes) -> Card:
    """
    The card in `data`; raises WrongFolder when it is none we know.

    The same bytes are read again by each run of a writer and after each error; to check them makes the whole schema.
    """
    try:
        raw = json.loads(data)
        if raw["version"] != VERSION:
            raise WrongFolder(
                f"card.json has version {raw['version']}, known is {VERSION}", hint="Upgrade this program."
            )
        raw = _OFTEN_EMPTY | raw
        values = {name: raw[key] for name, key in _KEYS.items()}
        return _checked(Card(**values | {name: tuple(values[name]) for name in _TUPLES}))
    except (ValueError, LookupError, TypeError, RecursionError, StopIteration) as exc:
        raise WrongFolder(f"card.json is not readable: {exc!r}", hint=AGAIN) from exc


def _checked(card: Card) -> Card:
    for name, declared in Card.__dataclass_fields__.items():
        kind: Any = get_origin(declared.type) or declared.type
        if type(getattr(card, name)) is not kind:
            raise TypeError(f"{_KEYS[name]} is {getattr(card, name)!r:.60}")
    if any(type(version) is not int for version in card.txlog_versions):
        raise TypeError(f"txlog-versions is {card.txlog_versions!r:.60}")
    _ = (card.schema, card.spec, card.order, card.keyed)  # refused here, not where a writer first looks at them
    return card
