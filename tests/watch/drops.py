"""A watched prefix and its table in memory; a bookkeeper ticks while the watcher waits."""

import json
import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.leases.lease import NoLease
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.support.desk import Desk, Ledger
from tests.support.faults import Faults, FaultyStore
from tests.support.in_turn import in_turn
from writers.opener import Opener
from writers.watch.events import Receive, receive
from writers.watch.plan import is_hidden
from writers.watch.prefix import Prefix
from writers.watch.rows import Reading
from writers.watch.waiting import Wanted
from writers.watch.watcher import Watcher
from writers.writer import Writer

NAME = "drops"


def ndjson(*keys: str) -> bytes:
    """
    An object with these keys.
    """
    rows = ({"timestamp": "2026-03-01T12:00:00Z", "key": key} for key in keys)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class Runs(Opener):
    """Runs of a writer that are numbered, and whose calls go one after the other."""

    def writer(self, name: str, folder: Folder | None = None) -> Writer:
        seed = next(RUNS).to_bytes(10, "big")
        return Writer.open(
            folder or self.folder(), name, clock=self.clock, wait=self.wait, patience=self.patience,
            stores=self.stores, random=lambda count: seed[:count], at_once=in_turn(),
        )  # fmt: skip


RUNS = iter(range(1, 10**9))


class Drops:
    """What others drop, and watchers of it, one after the other or at once."""

    def __init__(self, root: str = "", store: Store | None = None) -> None:
        self.desk = Desk(f"memory://{uuid.uuid4()}")
        self.desk.set_card()
        self.ledger = Ledger(self.desk)
        self.store = store or open_store(root or f"memory://{uuid.uuid4()}")
        self.url = self.store.url

    def put(self, *keys: str, rows: Iterable[str] = ()) -> None:
        """Drops objects, each with a row of its key, or with these rows."""
        for key in keys:
            self.store.replace(key, ndjson(*(rows or [key])))

    def wait(self, seconds: float) -> object:
        self.desk.clock.wait(seconds)
        return self.ledger.tick()

    def watcher(
        self,
        faults: Faults | None = None,
        moves: bool = False,
        wait: Callable[[float], object] | None = None,
        store: Store | None = None,
        receive: Receive = receive,
        **wanted: Any,
    ) -> Watcher:
        """A watcher of a new process, which ends when all is in."""
        faults, data = faults or Faults(), f"{self.desk.root}/data"
        self.desk.clock.move(seconds=1)

        def stores(url: str) -> Any:
            return FaultyStore(open_store(url), faults, "data" if url == data else "folder")

        opener = Runs(f"{self.desk.root}/_bookkeeper", stores, self.desk.clock, wait or self.wait, timedelta(minutes=5))
        given = {"settle": timedelta(0), "once": True, "backfill": True, "reading": Reading(2**20), **wanted}
        prefix: Any = FaultyStore(store or self.store, faults, "drops")
        return Watcher(Wanted(NAME, **given), opener, Prefix(prefix, moves), NoLease(), receive)

    def run(self, faults: Faults | None = None, **given: Any) -> Watcher:
        """Watches until all is in."""
        watcher = self.watcher(faults, **given)
        watcher.run()
        return watcher

    def left(self) -> list[str]:
        """What lies below the prefix, but for what a watcher needs to go on."""
        listed = (item.key for item in self.store.list(""))
        return sorted(key for key in listed if not key.startswith("_bookkeeper/") and not key.endswith(".tmp"))

    def dropped(self) -> list[str]:
        """What others have dropped, and is there."""
        return [key for key in self.left() if not is_hidden(key)]

    def own(self) -> list[str]:
        """What a watcher needs to go on: kinds and numbers."""
        names = (item.key.removeprefix("_bookkeeper/") for item in self.store.list("_bookkeeper/"))
        return sorted("-".join(name.split("-")[:2]) for name in names if not name.endswith(".tmp"))

    def keys(self) -> list[str]:
        """What is in the table."""
        return self.ledger.keys()
