"""A keyed publish that crashes, or fails, at any operation: what it leaves, and what the next run makes of it."""

import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import BookkeeperError, StorageUnavailable
from bookkeeper.stores.locations import normal_file
from bookkeeper.stores.open import open_store
from tests.support.desk import Desk, Ledger
from tests.support.enumerated import Point, crash_points, crashed, error_points, late_points, recorded
from tests.support.faults import Faults, FaultyStore
from tests.support.in_turn import Order, in_turn, orders
from tests.support.upserts import keyed_card, keys, merged, state, streamed, table

#: of two publishes: a shadow file, then a data and a delete file for each of two steps
UPLOADS, CREATES = 10, 2
#: the state after the changes below, whatever happened on the way
ROWS = {1: "1b", 2: "1a", 4: "1b"}


@dataclass
class Bookkeeper(Ledger):
    """Commits in order, and keeps what it committed."""

    desk: Desk
    committed: list[Txlog] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.desk)

    def _commit(self, item: Txlog) -> None:
        super()._commit(item)
        self.committed.append(item)


class Changes:
    """A source of two positions, two steps each, read by one writer whose clock is earlier in each run."""

    def __init__(self, order: Order) -> None:
        self.desk, self.order = Desk(f"memory://{uuid.uuid4()}"), order
        keyed_card(self.desk)
        self.ledger = Bookkeeper(self.desk)

    def copy(self, faults: Faults) -> None:
        """One run, from where the positions end."""
        desk, label = self.desk, {f"{self.desk.root}/data": "data"}
        desk.stores = lambda url: FaultyStore(open_store(url), faults, label.get(url, "folder"))  # type: ignore[return-value]
        desk.clock.move(minutes=-10)
        with desk.writer(at_once=in_turn(self.order), wait=lambda seconds: True) as writer:
            for at in range(int(writer.position or b"0"), 2):
                writer.upsert(table([(1, f"{at}a"), (2, f"{at}a"), (3, f"{at}a")]))
                writer.delete(keys(3, 4))
                writer.roll()
                writer.upsert(table([(1, f"{at}b"), (4, f"{at}b")]))
                writer.publish(position=b"%d" % (at + 1))
                self.ledger.tick()
                desk.clock.move(seconds=2)

    def finish(self) -> None:
        """Runs until the source is read and all of it is committed."""
        self.ledger.finish(lambda: self.copy(Faults()))

    def check(self, point: Point) -> None:
        """Batch readers and the stream's copy agree with the source; files that no txlog names are all that is left."""
        done = self.ledger.committed
        assert state(self.desk, done) == merged(streamed(self.desk, done)) == ROWS, point
        assert sum(item.row_count for item in done) == 12, point  # no row twice in the stream either
        assert self.desk.left() == {"card.json", "marks.json"}, point
        named = {path for item in done for path in item.every_path}
        assert named <= self._stored(), point

    def _stored(self) -> set[str]:
        root = f"{self.desk.root}/data"
        return {normal_file(f"{root}/{item.key}") for item in open_store(root).list("")}


def operations(order: Order) -> list[str]:
    return recorded(Changes(order).copy)


@pytest.mark.parametrize("number", [0, 5])
def test_a_crash_at_each_operation_leaves_only_files_that_no_txlog_names(number: int) -> None:
    order, tried = orders(3)[number], Counter[str]()
    for point in [Point(0, "", "none"), *crash_points(operations(order))]:
        source = Changes(order)
        if point.when != "none":
            assert crashed(source.copy, point), point
            tried[point.operation.split(" ")[0]] += 1
        source.finish()
        source.check(point)
    assert tried == {"upload": 3 * UPLOADS, "create": 3 * CREATES}


@pytest.mark.parametrize("points", [error_points, late_points])
def test_an_error_or_a_late_put_at_each_operation_loses_and_doubles_nothing(points: Any) -> None:
    order = orders(3)[0]
    for point in points(operations(order)):
        source = Changes(order)
        with suppress(BookkeeperError):
            source.copy(Faults().at(point.number, point.when, StorageUnavailable, point.delay))
        source.finish()
        source.check(point)
