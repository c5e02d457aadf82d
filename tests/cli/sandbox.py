"""A small lake and the files that the examples of the commands name, put back before each run."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.contract.names import TxlogName
from tests.support.configured import configured
from tests.support.desk import Desk
from tests.support.lake import Lake, Saved, Writes
from tests.support.slots import Slot
from tests.support.upserts import keyed_card

RUN = TxlogName("ingest-7", "0199c0de-0000-7000-8000-000000000001", 0)
LINE = '{"timestamp": "2026-07-01T12:00:00Z", "key": "%s", "value": "v"}\n'


class Sandbox:
    """A lake and the files that examples name, as they were, before each example."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.lake = Lake(root)
        self.writer = Writes(self.lake)
        self.writer.name = RUN
        self.writer.goes_on(b"1", *"abcdef")
        Slot(self.lake, "orders-03").reaches("g", **{"orders/17": "4711"})
        self.lake.tick()
        Writes(self.lake, "w2").publish("pending")
        self.config = configured(self.lake, bookkeeper={"listen": "127.0.0.1:0"}).read_text()
        for month in ("july", "august"):
            (root / f"{month}.ndjson").write_text(LINE % month)
        (root / "app.log").write_text(LINE % "logged")
        bad = {"file": "july.ndjson", "offset": 0, "text": LINE % "again"}
        (root / "import-1.bad.ndjson").write_text(json.dumps(bad) + "\n")
        (root / "prices.txt").write_text("timestamp;key;value\n2026-07-01T12:00:00Z;gold;1\n")
        (root / "prices.csv").write_text("timestamp;key;price\n2026-07-01T12:00Z;gold;1.5\n2026-07-02T12:00Z;tin;NA\n")
        for keyed in ("orders", "users"):
            keyed_card(Desk(f"file://{root}/{keyed}"))
        for name in ("orders.ndjson", "orders.json"):
            (root / name).write_text('{"op": "c", "before": null, "after": {"id": 1, "value": "new"}}\n')
        (root / "users.ndjson").write_text('{"__op": "u", "id": 1, "value": "changed"}\n')
        pq.write_table(pa.table({"timestamp": pa.array([0], pa.timestamp("us", "UTC"))}), root / "sample.parquet")
        self.saved = Saved(self.lake)

    def restore(self) -> None:
        self.saved.restore()
        self.writer.name = RUN.at(1)

    def here(self, example: str) -> str:
        """The example with places of this sandbox."""
        folder, root = self.lake.made.folder.removeprefix("file://"), str(self.lake.root)
        moved = {"/lake/events/_bookkeeper": folder, "s3://lake": f"file://{root}", "/var/lib": root}
        moved |= {f"/lake/{keyed}": f"{root}/{keyed}" for keyed in ("orders", "users")}
        moved |= {"0.0.0.0:9464": "127.0.0.1:0"}
        for theirs, ours in moved.items():
            example = example.replace(theirs, ours)
        return example
