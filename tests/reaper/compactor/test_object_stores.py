"""The embedded compactor on object stores: files are read, new ones uploaded, and the rewrite is committed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Settings, Table
from bookkeeper.contract.rewrite import Base, ReplacedFile
from bookkeeper.serve.open import open_bookkeeper
from bookkeeper.stores.open import stores_with
from reaper.compactor.group import Group
from reaper.compactor.worker import CannotRewrite, rewrite
from reaper.context import ReaperContext
from tests.servers.shared import place, wanted
from tests.support.pyiceberg_files import sqlite_catalog
from writers import Writer

FILES = 5


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("kind", ["s3", "azurite"])
def test_files_are_rewritten_and_committed(kind: str, tmp_path: Path) -> None:
    where = sqlite_catalog(tmp_path, **wanted(kind).properties)
    where = replace(where, properties={**where.properties, "warehouse": place(kind)})
    table = Table(name="events", identifier="demo.events")
    settings = Settings(where, tables={"events": table})
    catalog = open_catalog(where, create=True)
    folder = initialise(catalog, table, schema_for(table)).folder
    stores = stores_with(catalog.properties)
    book = open_bookkeeper(settings, table, now)
    with Writer.open(folder, "w1", stores=stores) as writer:
        for number in range(FILES):
            writer.write(pa.Table.from_pylist([{"timestamp": now(), "key": f"k{number}", "value": b"v"}]))
            writer.publish()
    book.tick(now())
    before = catalog.load_table(table.identifier).scan().to_arrow().to_pylist()

    context = ReaperContext.of(table, catalog, None, now())
    loaded, files = context.load(), live(book)
    head = loaded.metadata.current_snapshot()
    assert head is not None
    base = Base(str(loaded.metadata.table_uuid), head.snapshot_id, head.sequence_number or 0)
    options: Any = {"now": now(), "bytes_per_second": None, "stopped": lambda: False}
    group = Group(0, files[0].file.partition, tuple(files), "a test")
    gone = replace(files[0].file, path=files[0].file.path.replace("w1-", "w2-"))
    with pytest.raises(CannotRewrite, match=r"w2-.*is not there"):
        rewrite(context, loaded, base, replace(group, files=(files[0]._replace(file=gone),)), **options)
    done = rewrite(context, loaded, base, group, **options)
    assert (done.new_files, done.rows) == (1, FILES)
    for second in range(0, 20, 6):
        book.tick(now() + timedelta(seconds=second))
    assert len(live(book)) == 1
    assert catalog.load_table(table.identifier).scan().to_arrow().to_pylist() == before


def live(book: Any) -> list[ReplacedFile]:
    """Every live data file, as the bookkeeper's ledger knows it."""
    view = book.ledger.load(book.folder.card().folder)
    return [
        ReplacedFile(entry.data_file, entry.sequence_number or 0, entry.file_sequence_number or 0)
        for entry in book.ledger.live_entries(view, ManifestContent.DATA)
    ]
