"""
A tick of a keyed table: steps of several runs, a txlog without deletes beside them, a late one, a merge.
"""

from contextlib import suppress
from pathlib import Path

from bookkeeper.contract.txlog_folder import PENDING
from bookkeeper.errors import Retry
from tests.chaos.account import account
from tests.chaos.scenes.scene import Scene
from tests.chaos.tally import Tally
from tests.support.faults import Faults
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import rows, streamed
from tests.support.lake import Lake


class Upserting(Scene):
    """Two ticks; rows are accounted as readers see them, and once more as a stream does."""

    name = "upserts"
    parts = ("commit_table", "-d0.avro", "-m0.avro", "-r0.avro", "create folder/rejected/", "delete folder/pending/")

    def prepare(self, root: Path) -> Lake:
        root.mkdir(parents=True)
        lake = keyed_lake(root)
        book = lake.book()
        old = Steps(lake, "k1")
        old.publish_steps(Step(upserts={1: "a0", 2: "b0"}), Step(upserts={1: "a1"}), Step(upserts={2: "b1"}))
        lake.tick(book)
        late = old.publish_steps(Step(upserts={1: "late"}))
        data = lake.folder.store.read(f"{PENDING}{late}")
        lake.folder.delete([late])
        lake.clock.move(seconds=60)
        new, other = Steps(lake, "k1"), Steps(lake, "k2")
        new.publish_steps(Step(upserts={1: "c"}), Step(deletes=[2]), Step(upserts={3: "d"}))
        name, plain = new.encoded([new.rows([{"id": 4, "value": "e", "op": "I"}])])
        lake.folder.publish(name, plain)
        lake.tick(book)
        new.publish_steps(Step(upserts={4: "f"}), Step(upserts={4: "g"}))
        name, plain = new.encoded([new.rows([{"id": 5, "value": "h", "op": "I"}])])
        lake.folder.publish(name, plain)
        new.publish_steps(Step(deletes=[5], shadow=False))
        other.publish_steps(Step(upserts={9: "z"}))
        lake.folder.publish(late, data)
        self.late = str(late)
        return lake

    def act(self, faults: Faults) -> None:
        book = self.lake.book(faults)
        for seconds in (1, 70):
            with suppress(Retry):
                self.lake.tick(book, seconds=seconds)

    def again(self) -> None:
        return None  # that is what draining does

    def published(self) -> list[str]:
        return ["1=c", "3=d", "4=g", "9=z"]

    def outcome(self, where: str) -> Tally:
        live = [f"{row['id']}={row['value']}" for row in rows(self.lake)]
        done = account(self.published(), live, where=where)
        seen = [f"{row['id']}={row['value']}" for row in streamed(self.lake)]
        versions = ["1=a0", "2=b0", "1=a1", "2=b1", "1=c", "2=None", "3=d", "4=e", "4=f", "4=g", "5=h", "9=z"]
        done += account(versions, seen, where=f"{where}, streamed")
        done.wrong += [f"{where}: {what}" for what in self.wrong()]
        return done

    def wrong(self) -> list[str]:
        rejected = self.lake.rejected()
        return super().wrong() + ([] if rejected == {self.late: "OutOfOrder"} else [f"rejected are {rejected}"])
