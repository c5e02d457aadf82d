"""Bare files: each (location, etag) becomes rows once, however often, late and unordered it is announced."""

import io
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import NotPossible, Retry, SchemaRefused, StorageUnavailable
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.support.crashing_store import Crash, CrashingStore
from tests.support.lake import Lake
from tests.support.threads import at_once
from writers.bare import GONE, KNOWN, PUBLISHED, Bare, TooOld, handle
from writers.writer import Writer

#: BARE_FILES=1000 is the whole show
FILES = int(os.environ.get("BARE_FILES") or 60)


class Drop:
    """A queue, and a place into which another system drops files."""

    def __init__(self, path: Path) -> None:
        self.lake = Lake(path / "lake")
        self.root = f"file://{path}/landing"
        self.store = open_store(self.root)
        self.book = self.lake.book()

    def put(self, key: str, *keys: str) -> None:
        rows = {"timestamp": pa.array([self.lake.clock.now] * len(keys), pa.timestamp("us", "UTC")), "key": [*keys]}
        out = io.BytesIO()
        pq.write_table(pa.table(rows), out)
        self.store.replace(key, out.getvalue())

    def bare(self, stores: Callable[[str], Store] = open_store, **given: timedelta) -> Bare:
        folder = Folder(stores(self.lake.folder.store.url))
        return Bare(folder, stores=stores, clock=self.lake.clock, wait=lambda seconds: None, **given)

    def tick(self) -> None:
        self.lake.tick(self.book)

    def event(self, *keys: str) -> dict[str, object]:
        made = [
            {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": key}}} for key in keys
        ]
        return {"Records": made}


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    return Drop(tmp_path)


def test_a_link_among_bare_files_is_not_followed(drop: Drop, tmp_path: Path) -> None:
    drop.put("a.parquet", "1")
    (tmp_path / "landing" / "a.parquet").rename(tmp_path / "secret.parquet")
    (tmp_path / "landing" / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    (tmp_path / "landing" / "x").symlink_to(tmp_path)
    for key in ("a.parquet", "x/secret.parquet"):
        with pytest.raises(SchemaRefused, match="symbolic link"):
            drop.bare().take(drop.root, key)


def test_a_file_whose_dictionary_unpacks_to_much_more_is_never_in_memory_as_a_whole(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookkeeper.format.batch_size.MOST_BATCH_BYTES", 2**20)
    drop.put("bomb.parquet", *["x" * 2**16] * 256)
    assert drop.store.size("bomb.parquet") < 2**18
    sizes, write = list[int](), Writer.write
    monkeypatch.setattr(Writer, "write", lambda run, rows: (sizes.append(rows.nbytes), write(run, rows)))
    assert drop.bare().take(drop.root, "bomb.parquet") == PUBLISHED
    drop.tick()
    assert len(drop.lake.keys()) == 256 and max(sizes) <= 2**21


def test_a_bare_file_becomes_rows_once(drop: Drop) -> None:
    drop.put("a.parquet", "1", "2")
    bare = drop.bare()
    assert [bare.take(drop.root, "a.parquet") for _ in range(2)] == [PUBLISHED, KNOWN]
    drop.tick()
    assert bare.take(drop.root, "a.parquet") == KNOWN
    drop.tick()
    assert drop.lake.keys() == ["1", "2"]


def test_a_bare_file_with_text_that_is_no_utf8_is_refused(drop: Drop) -> None:
    out, texts = io.BytesIO(), pa.array([b"a", b"m\xff", b"z"], pa.binary())
    key = pa.StringArray.from_buffers(3, texts.buffers()[1], texts.buffers()[2])
    times = pa.array([drop.lake.clock.now] * 3, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"timestamp": times, "key": key}), out)
    drop.store.replace("a.parquet", out.getvalue())
    with pytest.raises(SchemaRefused, match="UTF"):
        drop.bare().take(drop.root, "a.parquet")
    drop.put("b.parquet", "1")
    drop.bare().take(drop.root, "b.parquet")
    drop.tick()
    assert drop.lake.keys() == ["1"]


def test_many_files_announced_three_times_each_in_any_order_with_crashes_are_in_once(drop: Drop) -> None:
    rng = random.Random(7)
    for number in range(FILES):
        drop.put(f"{number}.parquet", f"{number:04d}")
    waiting = [f"{number}.parquet" for number in range(FILES)] * 3
    rng.shuffle(waiting)
    crashes = 0
    while waiting:
        key = waiting.pop()
        fatal = rng.randrange(40) if rng.random() < 0.4 else None
        try:
            drop.bare(_dying(fatal)).take(drop.root, key)
        except Crash:
            crashes += 1
            waiting.insert(rng.randrange(len(waiting) + 1), key)  # not acknowledged: it comes again
        if rng.random() < 0.05:
            drop.tick()
    for _ in range(3):
        drop.tick()
    assert drop.lake.keys() == [f"{number:04d}" for number in range(FILES)]
    assert drop.lake.rejected() == {}
    assert crashes > FILES / 20


def _dying(fatal: int | None) -> Callable[[str], Store]:
    """Stores of one process, which ends at the `fatal`-th point of any of them."""
    made: list[CrashingStore] = []

    def opened(url: str) -> Store:
        made.append(CrashingStore(open_store(url)))
        store, before = made[-1], made[:-1]
        store._fatal = None if fatal is None else fatal - sum(other.points for other in before)
        return store  # type: ignore[return-value]

    return opened


def test_of_many_that_take_one_file_at_once_the_rows_come_once(drop: Drop) -> None:
    for number in range(10):
        drop.put(f"{number}.parquet", f"{number}")
        acts = [lambda number=number: drop.bare().take(drop.root, f"{number}.parquet") for _ in range(4)]
        assert set(at_once(acts)) <= {PUBLISHED, KNOWN}
    drop.tick()
    drop.tick()
    assert drop.lake.keys() == [f"{number}" for number in range(10)]


def test_the_same_key_with_other_bytes_is_another_file(drop: Drop) -> None:
    drop.put("a.parquet", "first")
    assert drop.bare().take(drop.root, "a.parquet") == PUBLISHED
    drop.tick()
    drop.put("a.parquet", "second")
    assert drop.bare().take(drop.root, "a.parquet") == PUBLISHED
    drop.tick()
    assert drop.lake.keys() == ["first", "second"]


def test_a_file_put_again_with_the_same_bytes_is_the_same_file(drop: Drop) -> None:
    drop.put("a.parquet", "1")
    data = drop.store.read("a.parquet")
    assert drop.bare().take(drop.root, "a.parquet") == PUBLISHED
    drop.tick()
    drop.store.replace("a.parquet", data)
    assert drop.bare().take(drop.root, "a.parquet") == KNOWN


def test_what_is_older_than_the_memory_is_refused_and_never_doubled(drop: Drop, tmp_path: Path) -> None:
    drop.put("a.parquet", "1")
    drop.bare().take(drop.root, "a.parquet")
    drop.tick()
    old = drop.lake.clock.now.timestamp() - 3 * 86_400
    for path in (tmp_path / "landing" / "a.parquet", *(tmp_path / "lake").rglob("bare/*")):
        os.utime(path, (old, old))
    drop.put("b.parquet", "2")
    bare = drop.bare()
    assert bare.take(drop.root, "b.parquet") == PUBLISHED
    assert bare.sweep() == 1
    with pytest.raises(TooOld):
        bare.take(drop.root, "a.parquet")
    for _ in range(3):
        drop.tick()
    assert drop.lake.keys() == ["1", "2"]


def test_a_process_whose_clock_is_ahead_sweeps_no_note_that_others_need(drop: Drop) -> None:
    drop.put("a.parquet", "1")
    drop.bare().take(drop.root, "a.parquet")
    drop.tick()
    right = drop.lake.clock.now
    drop.lake.clock.move(days=3)
    drop.bare().sweep()
    drop.lake.clock.now = right
    again = drop.bare().take(drop.root, "a.parquet")
    drop.tick()
    assert (drop.lake.keys(), again) == (["1"], KNOWN)


def test_an_object_that_is_gone_is_acknowledged(drop: Drop) -> None:
    drop.put("other.parquet", "1")
    assert drop.bare().take(drop.root, "a.parquet") == GONE


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet"])
def test_what_is_no_parquet_file_is_refused(drop: Drop, content: bytes) -> None:
    drop.store.replace("a.parquet", content)
    with pytest.raises(SchemaRefused):
        drop.bare().take(drop.root, "a.parquet")
    assert drop.lake.pending() == []


def test_a_batch_says_which_of_its_messages_have_to_come_again(drop: Drop) -> None:
    drop.put("a.parquet", "1")
    drop.put("b.parquet", "2")
    drop.store.replace("bad.parquet", b"bad")
    bodies = {
        "m1": drop.event("a.parquet"),
        "m2": drop.event("bad.parquet", "b.parquet"),
        "m3": {"Event": "s3:TestEvent"},
    }
    bodies["m4"] = drop.event("b.parquet", "notes.txt")
    batch = {"Records": [{"messageId": key, "body": json.dumps(body)} for key, body in bodies.items()]}
    assert handle(batch, drop.bare(), lambda bucket: drop.root) == {"batchItemFailures": [{"itemIdentifier": "m2"}]}
    drop.tick()
    assert drop.lake.keys() == ["1", "2"]


def test_an_event_that_comes_alone_raises_what_went_wrong(drop: Drop) -> None:
    drop.put("a.parquet", "1")
    assert handle(drop.event("a.parquet"), drop.bare(), lambda bucket: drop.root) == {"batchItemFailures": []}
    drop.store.replace("bad.parquet", b"bad")
    with pytest.raises(SchemaRefused):
        handle(drop.event("bad.parquet"), drop.bare(), lambda bucket: drop.root)


def test_a_storage_that_does_not_answer_leaves_the_event_unacknowledged(drop: Drop) -> None:
    drop.put("a.parquet", "1")

    def silent(url: str) -> Store:
        return CrashingStore(open_store(url), lost={"read_tagged": StorageUnavailable("no")})  # type: ignore[return-value]

    with pytest.raises(Retry):
        drop.bare(silent).take(drop.root, "a.parquet")


def test_bare_files_come_in_any_order_so_a_keyed_table_refuses_them(tmp_path: Path) -> None:
    drop = Drop(tmp_path)
    card = drop.lake.folder.card()
    schema = {**card.table_schema, "identifier-field-ids": [1]}
    drop.lake.folder.write_card(replace(card, table_schema=schema, upserts={"delete-spec-id": card.spec_id}))
    drop.put("a.parquet", "1")
    with pytest.raises(NotPossible, match="bare files"):
        drop.bare().take(drop.root, "a.parquet")
    assert drop.lake.folder.pending() == []
