"""A compactor that is nothing but the contract: reads live files of a lake, writes their rows anew, says so."""

import io
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent

from bookkeeper.contract.pending_rewrites import publish
from bookkeeper.contract.rewrite import Base, ReplacedFile, Rewrite, decode, encode
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.view import View
from bookkeeper.tick.check_rewrites import CheckedRewrites, check_rewrites
from tests.support.lake import Lake, described

MOST = 2**26


def live(lake: Lake) -> list[ReplacedFile]:
    """Every live data file with its sequence numbers, oldest first."""
    found = [
        ReplacedFile(entry.data_file, entry.sequence_number or 0, entry.file_sequence_number or 0)
        for entry in lake.book().ledger.live_entries(lake.view(), ManifestContent.DATA)
    ]
    return sorted(found, key=lambda item: (item.sequence_number, item.file.path))


def base_of(lake: Lake, applied: Sequence[str] = ()) -> Base:
    """What a compactor notes of the head."""
    view = lake.view()
    assert view.head is not None
    return Base(view.uuid, view.head.snapshot_id, view.head.sequence_number or 0, tuple(applied))


def compacted(lake: Lake, old: Sequence[ReplacedFile], *given: Any, **changes: Any) -> Rewrite:
    """
    The rewrite that `encoded` makes.
    """
    return decode(*encoded(lake, old, *given, **changes), MOST)


def published(lake: Lake, old: Sequence[ReplacedFile], *given: Any, **changes: Any) -> str:
    """
    Publishes the rewrite that `encoded` makes; its id.
    """
    rewrite_id, data = encoded(lake, old, *given, **changes)
    publish(lake.folder, rewrite_id, data)
    return rewrite_id


def encoded(
    lake: Lake,
    old: Sequence[ReplacedFile],
    base: Base | None = None,
    keeps: Callable[[dict[str, Any]], bool] = lambda row: True,
    **changes: Any,
) -> tuple[str, bytes]:
    """
    Id and bytes of the rewrite of these files (of one partition) into one with the rows it `keeps`, none for none.

    `changes` are those of the new file's description.
    """
    rewrite_id, card = str(uuid.uuid4()), lake.folder.card()
    tables = [pq.read_table(io.BytesIO(_stored(lake, item.file.path))) for item in old]
    rows = [row for row in pa.concat_tables(tables).to_pylist() if keeps(row)]
    new = list[DataFile]()
    if rows:
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema_to_pyarrow(card.schema).remove_metadata()), out)
        name = f"{rewrite_id}-00001.parquet"
        lake.store(card.data_path).upload(name, out.getvalue())
        file = described(f"{card.data_path}/{name}", card.schema, card.spec, rows, out.tell())
        path = changes.pop("path", file.path).format(id=rewrite_id)
        new.append(replace(file, partition=old[0].file.partition, path=path, **changes))
    return rewrite_id, encode(rewrite_id, base or base_of(lake), card.schema, card.spec, new, old)


def _stored(lake: Lake, path: str) -> bytes:
    folder, _, name = path.rpartition("/")
    return lake.store(folder).read(name)


def check(lake: Lake, *rewrites: Rewrite, book: Any = None) -> tuple[Any, View, CheckedRewrites]:
    """The ledger, its view of now, and what that says of the rewrites."""
    ledger = (book or lake.book()).ledger
    view = ledger.load(lake.folder.card().folder)
    return ledger, view, check_rewrites(ledger, view, rewrites)


def commit(lake: Lake, *rewrites: Rewrite, book: Any = None) -> CheckedRewrites:
    """Checks and commits what is good."""
    ledger, view, checked = check(lake, *rewrites, book=book)
    if checked.good:
        ledger.rewrite(view, checked.good, checked.deletes)
    return checked
