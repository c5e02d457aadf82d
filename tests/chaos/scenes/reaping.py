"""
A reaper's run over a queue with merged manifests, dropped files and old metadata, while txlogs are pending.
"""

from datetime import timedelta
from pathlib import Path

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper, Retention
from reaper import reap
from tests.chaos.scenes.scene import DAY, Scene, lake_at
from tests.support.faults import Faults, FaultyCatalog
from tests.support.lake import Lake, Writes

RULES = Reaper(older_than=timedelta(minutes=10), retain_last=2, metadata_keep=timedelta(hours=1))


class Reaping(Scene):
    """Whatever the reaper deletes, every row and every kept snapshot can still be read, and the queue goes on."""

    name = "reaper"
    parts = (
        "create folder/reaper/journal.json",
        "commit_table",
        "delete events/data/",
        ",metadata/",  # in the same batch
        "delete folder/reaper/journal.json",
    )

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root, reaper=RULES, retention=Retention(keep=timedelta(hours=12), brake=1.0))
        writer = Writes(lake)
        writer.publish("gone", at=lake.clock.now - DAY)
        keeps_all = lake.book(retention=Retention())
        for number in range(5):
            writer.publish(f"k{number}")
            lake.tick(keeps_all, seconds=20)
        for number in range(5, 8):
            writer.publish(f"k{number}")
            lake.tick(minutes=2)
        writer.publish("waiting")
        lake.clock.move(hours=2)
        self.writer, self.later = writer, 0
        return lake

    def restore(self) -> None:
        super().restore()
        self.later = 0

    def act(self, faults: Faults) -> None:
        lake = self.lake
        catalog = FaultyCatalog(open_catalog(lake.catalog_settings), faults)
        reap(catalog, lake.settings, lake.clock.now, open_store=lake.faulty(faults))

    def again(self) -> None:
        """The queue goes on before the reaper does."""
        self.later += 1
        Writes(self.lake, "later").publish(f"later-{self.later}")
        self.lake.tick()
        super().again()

    def published(self) -> list[str]:
        return [*(f"k{number}" for number in range(8)), "waiting", *(f"later-{n + 1}" for n in range(self.later))]

    def wrong(self) -> list[str]:
        """An audit reads every manifest that a kept snapshot names."""
        try:
            return super().wrong()
        except FileNotFoundError as error:
            return [f"a snapshot that is kept cannot be read: {error}"]
