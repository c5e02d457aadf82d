"""What a publish costs in round trips, on the wire: what has to wait for nothing is under way at once."""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

from bookkeeper.catalogs.open import STORAGE
from bookkeeper.config.settings import Catalog
from tests.servers.objects import azure_properties, s3_properties
from tests.servers.proxy import Proxy, Reply, Request, proxy
from tests.servers.shared import place, wanted
from tests.stores.wires import OBJECTS
from tests.support.lake import Clock, Lake
from writers.writer import Writer


@dataclass
class Gate(Proxy):
    """Answers none of the next `parties` requests before all of them have arrived."""

    gate: Barrier | None = None
    asked: list[str] = field(default_factory=list)

    def of(self, parties: int) -> None:
        self.gate, self.asked = Barrier(parties, timeout=60), []

    def answer(self, request: Request) -> Reply:
        self.asked.append(f"{request.method} {request.path}")
        if self.gate is not None and len(self.asked) <= self.gate.parties:
            self.gate.wait()
        return super().answer(request)


def rows(clock: Clock, days: int) -> pa.Table:
    """A row of each of so many days."""
    at = [clock.now]
    for _ in range(days - 1):
        at.append(clock.move(days=1))
    return pa.table({"timestamp": pa.array(at, pa.timestamp("us", "UTC")), "key": [str(day) for day in range(days)]})


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_publish_is_two_round_trips_in_a_row_however_many_files_it_has(kind: str) -> None:
    with proxy(wanted(kind).port, Gate) as between:
        assert isinstance(between, Gate)
        near = {**wanted(kind).properties, "py-catalog-impl": STORAGE, "warehouse": place(kind)}
        far = {**near, **{"azurite": azure_properties, "s3": s3_properties}[kind](between.port)}
        lake = Lake(Path(), catalog=Catalog("lake", near), file_names=None)
        clock = lake.clock
        writer = Writer.open(lake.made.folder, "w1", clock=clock, stores=lake.far_store(**far))
        for files, others in ((1, ["card.json", "list"]), (3, ["card.json", "list", "marks.json"])):
            clock.move(seconds=2)
            writer.write(rows(clock, files))
            between.of(files + len(others))
            writer.publish(position=b"%d" % files)
            assert len(between.asked) == files + len(others) + 1
            assert between.asked[-1].startswith("PUT") and "/pending/" in between.asked[-1]
            assert all(any(part in asked for asked in between.asked[:-1]) for part in others)
