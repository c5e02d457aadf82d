"""Whatever of ours brings files in names them so that a strict table takes them."""

import io
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from bookkeeper.cli import main as bookkeeper
from bookkeeper.commands.replay import replay
from bookkeeper.contract.file_names import STRICT, owner_of
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store
from tests.support.compactor import commit, compacted
from tests.support.compactor import live as live_files
from tests.support.configured import configured
from tests.support.keyed import keyed_lake
from tests.support.lake import Lake, Writes
from writers.bare import PUBLISHED, Bare
from writers.writer import Writer


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table as `init` makes it."""
    return Lake(tmp_path / "lake", file_names=None, partition_by=())


def opened(lake: Lake, name: str = "ingest-7", **given: Any) -> Any:
    return closing(Writer.open(lake.folder, name, clock=lake.clock, wait=lambda seconds: None, **given))


def rows(lake: Lake, *keys: str) -> pa.Table:
    return pa.table({"timestamp": pa.array([lake.clock.now] * len(keys), pa.timestamp("us", "UTC")), "key": [*keys]})


def parquet(lake: Lake) -> None:
    with opened(lake) as writer:
        for key in "ab":  # two txlogs of one run
            writer.write(rows(lake, key))
            writer.publish()


def avro(lake: Lake) -> None:
    lake.settings = replace(lake.settings, file_format="avro")
    lake.tick()
    assert lake.folder.card().file_format == "avro"
    parquet(lake)


def renewed(lake: Lake) -> None:
    """Its file is past half of the orphan age at the publish, and written again."""
    with opened(lake) as writer:
        writer.write(rows(lake, "a"))
        writer.roll()
        lake.clock.move(milliseconds=lake.folder.card().orphan_age_ms * 0.6)
        writer.write(rows(lake, "b"))
        writer.publish()


def a_name_like_a_prefix(lake: Lake) -> None:
    with opened(lake, "a-01a1fdf4-2b80-7001-8203-040506070809-0000000001") as writer:
        writer.write(rows(lake, "a", "b"))
        writer.publish()


def bare(lake: Lake) -> None:
    root = f"file://{lake.root}/landing"
    out = io.BytesIO()
    pq.write_table(rows(lake, "a", "b"), out)
    open_store(root).replace("x.parquet", out.getvalue())
    taker = Bare(
        Folder(open_store(lake.folder.store.url)), stores=open_store, clock=lake.clock, wait=lambda seconds: None
    )
    assert taker.take(root, "x.parquet") == PUBLISHED


def replayed(lake: Lake) -> None:
    """Its data file comes late; what it is called is what it was called."""
    parquet(lake)
    data = Path(lake.folder.card().data_path.removeprefix("file://"))
    moved = {path: path.read_bytes() for path in data.glob("*.parquet")}
    for path in moved:
        path.unlink()
    lake.tick()
    assert set(lake.rejected().values()) == {"FileMissing"}
    for path, content in moved.items():
        path.write_bytes(content)
    for name in sorted(lake.rejected()):
        replay(lake.folder, lake.book().ledger, lake.settings, TxlogName.parse(name), lake.clock.now)


PRODUCERS: dict[str, Callable[[Lake], None]] = {
    "Parquet": parquet,
    "Avro": avro,
    "a renewed file": renewed,
    "a writer whose name is like a prefix": a_name_like_a_prefix,
    "bare": bare,
    "replay": replayed,
}


def names_of(lake: Lake) -> list[str]:
    """Last segments of the live data files."""
    return [item.file.path.rpartition("/")[2] for item in live_files(lake)]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_what_is_ours_is_taken(lake: Lake, producer: str) -> None:
    assert lake.folder.card().file_names == STRICT
    PRODUCERS[producer](lake)
    lake.drain()
    assert (lake.rejected(), sum(item.file.record_count for item in live_files(lake))) == ({}, 2)
    assert all(owner_of(name) for name in names_of(lake))


def test_steps_of_a_keyed_table_are_taken(tmp_path: Path) -> None:
    """Data, delete and shadow files, of which some were renewed."""
    lake = keyed_lake(tmp_path / "lake", file_names=None)
    assert lake.folder.card().file_names == STRICT
    with opened(lake) as writer:
        for number in range(3):
            writer.upsert(pa.table({"id": pa.array([1, 2]), "value": [f"{number}", "x"]}))
            writer.delete(pa.table({"id": pa.array([2])}))
            writer.roll()
            lake.clock.move(milliseconds=lake.folder.card().orphan_age_ms * 0.3)
        writer.publish()
    lake.drain()
    assert (lake.rejected(), lake.pending()) == ({}, [])
    assert names_of(lake)


def test_new_files_of_a_rewrite_are_taken_and_belong_to_no_txlog(lake: Lake) -> None:
    parquet(lake)
    lake.tick()
    assert not commit(lake, compacted(lake, live_files(lake))).rejected
    assert (lake.keys(), [owner_of(name) for name in names_of(lake)]) == (["a", "b"], [None])


def test_once_in_a_new_process_refuses_a_live_file_named_again(lake: Lake) -> None:
    """Each `once` starts with no memory of what was committed."""
    command = ["once", "--config", str(configured(lake))]
    writer = Writes(lake, "buggy", started=lake.clock.now - timedelta(minutes=1))
    file = writer.file(["a"], sequence=1)
    first, data = writer.encoded([file])
    lake.folder.publish(first, data)
    CliRunner().invoke(bookkeeper, command)
    assert lake.keys() == ["a"]
    second, data = writer.encoded([file])
    lake.folder.publish(second, data)
    CliRunner().invoke(bookkeeper, command)
    assert (lake.keys(), lake.rejected()) == (["a"], {str(second): "FileNameRefused"})
