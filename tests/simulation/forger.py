"""A writer that names data files of others; it follows every other rule."""

from typing import TYPE_CHECKING

from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import Envelope, decode, encode
from bookkeeper.contract.txlog_folder import PENDING

if TYPE_CHECKING:
    from tests.simulation.world import World

FORGER = "a-forger"


def forge(world: "World", name: TxlogName | None) -> None:
    """Publishes a txlog with the files of this one, if it is pending still; the disk alone sees it."""
    place = f"{world.folder_url}/{PENDING}"
    if name is None or not world.disk.has(f"{place}{name}"):
        return
    txlog = decode(name, world.disk.get(f"{place}{name}").data, 2**26)
    now, count = epoch_ms(world.scheduler.now), world.counts["forged"]
    forged = TxlogName(FORGER, new_incarnation(now, count.to_bytes(10, "big")), 1)
    schema, spec = world.metadata.schemas, world.metadata.partition_specs
    schema_of = next(item for item in schema if item.schema_id == txlog.schema_id)
    spec_of = next(item for item in spec if item.spec_id == txlog.spec_id)
    data = encode(Envelope(forged, txlog.table_uuid, now), schema_of, spec_of, txlog.files)
    world.counts["forged"] += 1
    world.disk.put(f"{place}{forged}", data)
