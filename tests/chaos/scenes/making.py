"""
`init` of a table that is not there; and the card, which follows the table and the settings.
"""

import shutil
from datetime import timedelta
from pathlib import Path

from pyiceberg.types import LongType

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from tests.chaos.scenes.scene import Scene, lake_at
from tests.support.faults import Faults, FaultyCatalog
from tests.support.lake import Lake, Writes


class Initialising(Scene):
    """Nothing is there; afterwards a writer publishes, and its rows get in."""

    name = "init"
    parts = ("create_namespace", "create_table", "create folder/card.json", "commit_table")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        lake.catalog.engine.dispose()
        shutil.rmtree(root)
        root.mkdir()
        self.written = False
        return lake

    def restore(self) -> None:
        super().restore()
        self.written = False

    def act(self, faults: Faults) -> None:
        lake = self.lake
        catalog = FaultyCatalog(open_catalog(lake.catalog_settings, create=True), faults)
        initialise(catalog, lake.settings, schema_for(lake.settings), store=lake.faulty(faults))

    def drain(self) -> None:
        if not self.written:
            self.written = True
            Writes(self.lake).publish("a")
        super().drain()

    def published(self) -> list[str]:
        return ["a"]


class Carding(Scene):
    """Another program adds a column, and the settings change twice: each time the card follows."""

    name = "card"
    parts = ("replace folder/card.json",)

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        Writes(lake).publish("a")
        lake.tick()
        with lake.table().update_schema() as change:
            change.add_column("count", LongType())
        Writes(lake).publish("b")
        self.written = False
        return lake

    def restore(self) -> None:
        super().restore()
        self.written = False

    def act(self, faults: Faults) -> None:
        for limit in (100, 200):
            self.lake.tick(self.lake.book(faults, pending_limit=limit, roll_after=timedelta(seconds=limit)))

    def drain(self) -> None:
        super().drain()
        if not self.written:
            self.written = True
            Writes(self.lake).publish("c")
            super().drain()

    def published(self) -> list[str]:
        return ["a", "b", "c"]

    def wrong(self) -> list[str]:
        names = [field.name for field in self.lake.folder.card().schema.fields]
        return super().wrong() + ([] if "count" in names else [f"the card has the columns {names}"])
