"""
The txlogs that are mutated: every golden one, with the rules of the table it belongs to.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.contract.keyed import Keyed
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog, decode
from bookkeeper.format import avro
from bookkeeper.tick.check_txlog import Rules
from tests.golden.contents import CREATED_MS, FOLDER, NAMES

#: the default of max_txlog_bytes would be as well, and costs more to probe
MOST = 2**22
NOW_MS = CREATED_MS + 1000


@dataclass(frozen=True)
class Seed:
    """A golden txlog."""

    key: str
    name: TxlogName
    data: bytes

    @cached_property
    def txlog(self) -> Txlog:
        return decode(self.name, self.data, MOST)

    @cached_property
    def meta(self) -> dict[str, bytes]:
        """Its header."""
        return dict(avro.decode(self.data, MOST).meta)

    @cached_property
    def blocks(self) -> tuple[avro.Block, ...]:
        """Its records, without what they were compressed to."""
        return tuple(avro.Block(item.count, item.payload) for item in avro.decode(self.data, MOST).blocks)

    @cached_property
    def avro_schema(self) -> Any:
        return json.loads(self.meta["avro.schema"])

    @cached_property
    def rules(self) -> Rules:
        """What its table allows, read from its own header."""
        schema = Schema.model_validate_json(self.meta["schema"])
        fields = json.loads(self.meta["partition-spec"])
        spec = PartitionSpec.model_validate({"spec-id": self.txlog.spec_id, "fields": fields})
        # A txlog of offsets alone names no path.
        named = next((row.path for row in self.txlog.every_row), "s3://lake/demo/events/data/")
        root = named.partition("/data/")[0] + "/data"
        specs, keyed, deletes = {spec.spec_id: spec}, None, self.txlog.deletes
        if deletes is not None:
            fields = json.loads(avro.read_header(self.meta["bookkeeper.deletes"]).meta["partition-spec"])
            specs[deletes.spec_id] = PartitionSpec.model_validate({"spec-id": deletes.spec_id, "fields": fields})
            keyed = Keyed(deletes.equality_ids[0], deletes.spec_id)
        schemas = {self.txlog.schema_id: schema}
        return Rules(self.txlog.table_uuid, root, schemas, specs, frozenset({0}), keyed)


def seeds() -> list[Seed]:
    """
    All golden txlogs.
    """
    return [Seed(key, name, (FOLDER / f"{key}.txlog.avro").read_bytes()) for key, name in NAMES.items()]
