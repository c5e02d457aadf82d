"""
Folds of a keyed table: by two bookkeepers at once, and while a rewrite and retention change the files they speak of.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bookkeeper.errors import Retry
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from bookkeeper.tick.duties import Duties
from bookkeeper.tick.tick import Bookkeeper
from tests.chaos.account import account
from tests.chaos.scenes.rewriting import taken_out
from tests.chaos.scenes.scene import Scene
from tests.chaos.tally import Tally
from tests.folds.test_races import rewrite_of
from tests.support import compactor
from tests.support.faults import Faults
from tests.support.folds import live
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import rows
from tests.support.lake import Lake


class Folding(Scene):
    """Each of two bookkeepers plans a fold in one tick and commits it in its next; of one table only one gets in."""

    name = "folds"
    parts = ("upload events/data/", "-deletes.parquet", "commit_table", "-d0.avro")

    def prepare(self, root: Path) -> Lake:
        root.mkdir(parents=True)
        lake = keyed_lake(root)
        book, writer = lake.book(), Steps(lake)
        for content in ({1: "a", 2: "b", 3: "c"}, {30: "goes", 31: "goes"}, {4: "d", 5: "e"}):
            writer.publish_rows(content)
            lake.tick(book)
        self.files = compactor.live(lake)
        writer.publish_steps(Step(upserts={2: "b2"}), Step(deletes=[4, 31]), Step(upserts={5: "e1"}))
        lake.tick(book)
        writer.publish_steps(Step(upserts={5: "e2"}))
        return lake

    def act(self, faults: Faults) -> None:
        books = [folding(self.lake, faults) for _ in range(2)]
        for seconds in (61, 5):
            for book in books:
                with suppress(Retry):
                    self.lake.tick(book, seconds=seconds)

    def drain(self) -> None:
        book = folding(self.lake)
        for _ in range(4):
            self.lake.tick(book, seconds=61)

    def published(self) -> list[str]:
        return ["1=a", "2=b2", "3=c", "5=e2", "30=goes"]

    def outcome(self, where: str) -> Tally:
        found = [f"{row['id']}={row['value']}" for row in rows(self.lake)]
        done = account(self.published(), found, where=where)
        return done + Tally(wrong=[f"{where}: {what}" for what in self.wrong()])

    def wrong(self) -> list[str]:
        left = len(live(self.lake, EQUALITY_DELETES))
        named = [item.file["referenced_data_file"] for item in live(self.lake, POSITION_DELETES)]
        found = [f"{left} equality delete files are not folded"] if left else []
        found += ["two position delete files for one data file"] if len({*named}) != len(named) else []
        return super().wrong() + found


class FoldingAmongOthers(Folding):
    """
    Between the plan and the commit of a fold a rewrite that knows no delete is committed, and retention takes a file.
    """

    name = "folds among others"

    def act(self, faults: Faults) -> None:
        # The first commit is that of the pending txlog, the second that of a fold.
        faults.between("commit_table", lambda: faults.between("commit_table", self.others) and None)
        super().act(faults)

    def others(self) -> None:
        """Once: what they have done already is not live any more."""
        first, second = (item.file.path for item in self.files[:2])
        for item in compactor.live(self.lake):
            if item.file.path == first and not self._is_folded(first):
                compactor.commit(self.lake, rewrite_of(self.lake, [item]))
            if item.file.path == second:
                taken_out(self.lake, item)

    def _is_folded(self, path: str) -> bool:
        return path in [item.file["referenced_data_file"] for item in live(self.lake, POSITION_DELETES)]

    def drain(self) -> None:
        self.others()
        super().drain()

    def published(self) -> list[str]:
        return super().published()[:-1]


def folding(lake: Lake, faults: Faults | None = None) -> Bookkeeper:
    """
    A bookkeeper that plans folds in its ticks, where the daemon has a thread.
    """
    book = lake.book(faults)

    def at_once(act: Callable[[], None], name: str) -> bool:
        act()
        return True

    book.duties = Duties(book.settings, book.folder, book.ledger, book.open_store, at_once)
    return book
