"""
What docs/stores.md#least-privilege says, for tests that put it in force: its blocks, by the words in front of them.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Store
from tests.docs.blocks import blocks
from tests.packaging.project import ROOT
from tests.support.compactor import live, published
from tests.support.configured import Queue, queue_with

DOC = ROOT / "docs" / "stores.md"
SECTION = DOC.read_text("utf-8").partition("\n## Least privilege\n")[2]
BLOCKS = [block for block in blocks(DOC) if block.text in SECTION]
ROLES = ("writer", "bookkeeper", "reaper", "consumer", "compactor")


def policies() -> dict[str, dict[str, Any]]:
    """
    The identity policy of each role on S3, in the order of the page.
    """
    found = [json.loads(block.text) for block in BLOCKS if block.kind == "json"]
    return dict(zip(ROLES, found, strict=True))


def permissions() -> dict[str, str]:
    """
    The permissions of each role's SAS token on Azure.
    """
    rows = re.findall(r"^\| (\w+) \|.*\| `([rwdcl]+)` \|$", SECTION, re.MULTILINE)
    assert [role for role, _ in rows] == list(ROLES)
    return dict(rows)


def grants() -> str:
    """
    The statements that a SQL catalog's owner runs.
    """
    (found,) = [block.text for block in BLOCKS if block.kind == "sql"]
    return found


def modes() -> str:
    """
    The commands that set up a local disk.
    """
    (found,) = [block.text for block in BLOCKS if block.kind == "sh"]
    return found


@dataclass(frozen=True)
class Roles:
    """A queue with a configuration file for each role; `url` is where its folder's parent is."""

    root: Path
    url: str
    catalog: dict[str, str]

    def queue(self, role: str, **changes: str) -> Queue:
        """The queue as this role reaches it, with other keys of its own."""
        keys, compaction = {**self.catalog, **changes}, {"fan-in": 2}
        return queue_with(keys, self.url, self.root, f"{role}.toml", "events", tables__events__compaction=compaction)


@dataclass(frozen=True)
class _Reached:
    """A table as one role reaches it, for the compactor of the tests."""

    queue: Queue

    @cached_property
    def catalog(self) -> Any:
        return open_catalog(self.queue.settings.catalog)

    @cached_property
    def folder(self) -> Folder:
        return Folder(self.store(self.queue.folder))

    def book(self) -> "_Reached":
        return self

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.catalog, "demo.events", lambda: datetime.now(UTC))

    def view(self) -> View:
        return self.ledger.load(self.folder.card().folder)

    def store(self, url: str) -> Store:
        return stores_with(self.catalog.properties)(url)


def compact(queue: Queue) -> str:
    """
    Rewrites all live files into one, with the rights that this queue's keys have; the rewrite's name.
    """
    table: Any = _Reached(queue)
    try:
        return f"{published(table, live(table))}.avro"
    finally:
        table.catalog.close()
