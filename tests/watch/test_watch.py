"""What is dropped below a prefix gets into the table once, and goes when it is in."""

import gzip
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import FileMissing, NotPossible, PositionTaken, StorageUnavailable
from bookkeeper.leases.lease import NoLease
from bookkeeper.stores.store import Listed
from tests.support.desk import SCHEMA, Ledger, rows
from tests.support.faults import Faults
from tests.support.wrapped import WrappedStore
from tests.watch.drops import NAME, Drops, ndjson
from writers.watch import plan as plans
from writers.watch.plan import Plan, Planned, WatchPosition
from writers.watch.rows import ObjectReader, Reading
from writers.writer import Writer


def parquet(table: pa.Table, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **how)
    return out.getvalue()


def listing(drops: Drops, change: Callable[[list[Listed]], list[Listed]]) -> Any:
    """The prefix, with other listings of what others have dropped."""

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        found = act(*given, **named)
        return change(found) if name == "list" and given == ("",) else found

    return WrappedStore(drops.store, around)


def results(drops: Drops, **given: Any) -> dict[str, int]:
    return {key[0]: count for key, count in drops.run(**given).figures.objects.items() if count}


def test_what_is_dropped_is_in_the_table_and_gone() -> None:
    drops = Drops()
    drops.put("a", "day=1/b", rows=["1", "2"])
    assert results(drops) == {"loaded": 2}
    assert drops.keys() == ["1", "1", "2", "2"]
    assert drops.left() == []
    assert drops.own() == ["done-1", "watch.json"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.ndjson", ndjson("1", "2")),
        ("a", ndjson("1", "2").rstrip(b"\n")),
        ("a.json.gz", gzip.compress(ndjson("1", "2"))),
        ("a.csv", b"\xef\xbb\xbfkey,timestamp\n1,2026-03-01T12:00:00Z\n2,2026-03-01T12:00:00Z\n"),
        ("a.tsv.gz", gzip.compress(b"timestamp\tkey\n2026-03-01T12:00:00Z\t1\n2026-03-01T12:00:00Z\t2\n\n")),
        ("a.parquet", parquet(rows("1", "2"))),
        ("wrong-ending.csv", parquet(rows("1", "2"), row_group_size=1)),
    ],
)
def test_an_object_is_read_by_what_it_begins_with_or_by_its_ending(name: str, data: bytes) -> None:
    drops = Drops()
    drops.store.create(name, data)
    drops.run()
    assert drops.keys() == ["1", "2"]
    assert drops.left() == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ndjson("1", "2") + b'{"key": 7}\n', "line 3"),
        (b"no rows at all", "line 1"),
        (ndjson("1").replace(b'"key"', b'"other"'), "line 1"),
        (b"PAR1" + b"x" * 50, "cannot be read as Parquet"),
        (parquet(rows("1", "2"))[:-30] + b"PAR1", "cannot be read as Parquet"),
        (parquet(pa.table({"other": [1]})), "other"),
        (b"\x1f\x8b" + b"x" * 50, "cannot be decompressed"),
        (b"PK\x03\x04", "zip"),
        (gzip.compress(b" " * 2**21), "more than"),
        (b"\xff" * 200 + b"\n", "line 1"),
        (b"[" * 100_000, "line 1"),
    ],
)
def test_an_object_that_is_no_rows_costs_only_itself_and_is_kept_with_its_reason(data: bytes, why: str) -> None:
    drops = Drops()
    drops.put("a", "z")
    drops.store.create("m/bad", data)
    assert results(drops) == {"loaded": 2, "rejected": 1}
    assert drops.keys() == ["a", "z"]
    kept, reason = drops.left()
    assert drops.store.read(kept) == data and kept.endswith("-bad") and reason == f"{kept}.reason.json"
    said = json.loads(drops.store.read(reason))
    assert said["key"] == "m/bad" and why in said["reason"] and len(said["reason"]) <= 1000
    assert "writer-watch-" not in said["reason"] and "/proc/" not in said["reason"]
    drops.put("b")
    assert results(drops) == {"loaded": 1}


@pytest.mark.parametrize("delta", [False, True])
def test_parquet_that_unpacks_to_much_more_is_never_in_memory_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, delta: bool
) -> None:
    seen, check = list[int](), ObjectReader._check_size
    monkeypatch.setattr(ObjectReader, "_check_size", lambda reader, size: seen.append(size) or check(reader, size))
    one, how = "x" * 2**14, {"use_dictionary": False, "column_encoding": {"key": "DELTA_BYTE_ARRAY"}} if delta else {}
    times = pa.array([datetime(2026, 3, 1, tzinfo=UTC)] * 2**14, pa.timestamp("us", "UTC"))
    keys = pa.DictionaryArray.from_arrays(pa.nulls(2**14, pa.int32()).fill_null(0), [one])
    bomb = parquet(pa.table({"timestamp": times, "key": keys.cast(pa.string())}), store_schema=False, **how)
    assert len(bomb) < 2**20
    drops = Drops()
    drops.store.create("bomb", bomb)
    drops.put("a")
    assert results(drops) == {"loaded": 1, "rejected": 1}
    assert max(seen) < 2**27


def arrow(rows: pa.Table, compression: str | None) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(rows)
    return file.getvalue()


def long_keys(rows: int) -> pa.Table:
    times = pa.array([datetime(2026, 3, 1, tzinfo=UTC)] * rows, pa.timestamp("us", "UTC"))
    keys = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 2**14])
    return pa.table({"timestamp": times, "key": keys})


@pytest.mark.parametrize("kind", ["compressed", "dictionary", "rows"])
def test_an_arrow_file_that_takes_much_more_memory_is_refused_before(kind: str) -> None:
    table, compression = long_keys(2**11), None
    if kind == "compressed":
        table, compression = table.set_column(1, "key", table["key"].cast(pa.string())), "zstd"
    if kind == "rows":  # each takes memory for the columns that the object lacks
        table = pa.table({"key": pa.nulls(2**21)})
    drops = Drops()
    drops.store.create("bomb", arrow(table, compression))
    drops.store.create("small", arrow(long_keys(8), "zstd"))
    del table
    pool = pa.proxy_memory_pool(before := pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        assert results(drops) == {"loaded": 1, "rejected": 1}
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 2**23 and len(drops.keys()) == 8
    assert "--max-object" in json.loads(drops.store.read(drops.left()[1]))["reason"]


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_many_short_lines_take_no_more_memory_by_the_columns_that_they_lack(kind: str) -> None:
    drops = Drops()
    wide = [NestedField(number, f"n{number}", LongType()) for number in range(1000, 1200)]
    drops.desk.set_card(Schema(*SCHEMA.fields, *wide, schema_id=0))
    for name, count in (("bomb", 10_000), ("small", 10)):
        lines = ["timestamp,key", *["2026-03-01T12:00:00Z,a"] * count]
        data = "\n".join(lines).encode() if kind == "csv" else ndjson(*["a"] * count)
        drops.store.create(f"{name}.{kind}", data)
    assert results(drops) == {"loaded": 1, "rejected": 1} and drops.keys() == ["a"] * 10
    assert "--max-object" in json.loads(drops.store.read(drops.left()[1]))["reason"]


@pytest.mark.parametrize("fds", ["/proc/self/fd", "/none"])
def test_no_temporary_file_is_left_and_a_full_disk_rejects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fds: str
) -> None:
    monkeypatch.setattr("writers.watch.rows._FDS", Path(fds))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    drops, waits = Drops(), list[float]()
    drops.put("a", "b")

    def wait(seconds: float) -> object:
        waits.append(seconds)
        if len(waits) == 4:
            (tmp_path / "none").mkdir()
        return drops.wait(seconds)

    assert results(drops, wait=wait) == {"loaded": 2}
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0] and drops.keys() == ["a", "b"]
    assert [*(tmp_path / "none").iterdir()] == []


def test_hidden_names_are_passed_over() -> None:
    drops = Drops()
    drops.put("_SUCCESS", ".a", "_temporary/a", "day=1/.crc", "a_b", "c.d")
    drops.run()
    assert drops.keys() == ["a_b", "c.d"]
    assert drops.left() == [".a", "_SUCCESS", "_temporary/a", "day=1/.crc"]


def test_what_replaced_an_object_before_its_commit_was_seen_stays_and_is_loaded_next() -> None:
    drops = Drops()
    drops.put("a", rows=["old"])
    replaced = Faults().between("delete drops/a", lambda: drops.put("a", rows=["new"]))
    drops.run(replaced)
    assert drops.keys() == ["new", "old"]
    assert drops.dropped() == []


def test_what_is_dropped_again_with_the_same_bytes_outlives_a_restart() -> None:
    drops = Drops()
    drops.put("a")
    drops.run()
    drops.put("a")
    drops.run()
    assert drops.keys() == ["a", "a"]


def test_a_listing_that_shows_objects_twice_doubles_none() -> None:
    drops = Drops()
    drops.put("a", "b")
    drops.run(store=listing(drops, lambda found: [*found, *found]))
    assert drops.keys() == ["a", "b"]


def test_a_listing_that_lags_costs_time_only() -> None:
    drops, stale = Drops(), list[Listed]()
    drops.put("a")
    stale += drops.store.list("")
    drops.run()
    drops.put("new")
    assert results(drops, store=listing(drops, lambda found: stale)) == {}
    assert drops.keys() == ["a"]
    drops.run()
    assert drops.keys() == ["a", "new"]


def test_objects_that_were_there_before_the_first_start_are_taken_only_on_demand() -> None:
    drops = Drops()
    drops.put("a")
    with pytest.raises(NotPossible, match="before its first start, such as a") as refused:
        drops.run(backfill=False)
    assert "--backfill" in refused.value.hint and drops.left() == ["a"] and drops.own() == []
    drops.run(backfill=True)
    drops.put("b")
    drops.run(backfill=False)
    assert drops.keys() == ["a", "b"]


def test_a_prefix_has_one_writer_of_one_table() -> None:
    drops = Drops()
    drops.run()
    other = Drops(drops.url)
    other.desk.set_card(table_uuid="another")
    with pytest.raises(NotPossible, match="watched by another writer or for another table"):
        other.run()
    drops.store.replace("_bookkeeper/watch.json", b"\xff" * 2**20)
    with pytest.raises(NotPossible, match="is not readable"):
        drops.run()


def test_a_writer_of_another_source_is_refused() -> None:
    drops = Drops()
    with drops.desk.writer(NAME) as writer:
        writer.write(rows("1"), position=b"42")
        writer.publish()
    with pytest.raises(NotPossible, match="its position is 42"):
        drops.run()


def test_a_storage_that_deletes_whatever_the_tag_is_is_refused() -> None:
    drops = Drops()
    drops.put("a")

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return drops.store.delete_many([given[0]]) and None if name == "delete_if" else act(*given, **named)

    with pytest.raises(NotPossible, match="ignores the condition of a delete"):
        drops.run(store=WrappedStore(drops.store, around))  # type: ignore[arg-type]
    assert drops.left() == ["a"]


def copied(drops: Drops, to: Drops) -> None:
    for item in [*drops.store.list("")]:
        to.store.replace(item.key, drops.store.read(item.key))


def test_a_copy_of_the_prefix_and_one_that_was_restored_are_refused() -> None:
    drops, copy = Drops(), Drops()
    drops.put("a")
    drops.run()
    drops.put("b")
    copied(drops, copy)  # with b, which is not in the table
    drops.run()
    copy.desk, copy.ledger = drops.desk, drops.ledger
    with pytest.raises(NotPossible, match=r"is not what was read: the last plan in the table is watch/2/") as refused:
        copy.run()
    assert drops.keys() == ["a", "b"]
    position = refused.value.hint.partition("--go-on=")[2].split()[0]
    with pytest.raises(NotPossible):
        copy.run(go_on=position.replace("/2/", "/1/"))
    copy.run(go_on=position)
    assert drops.keys() == ["a", "b", "b"]
    copy.put("c")
    copy.run(go_on=position)  # the option may stay: it is about that position alone
    assert drops.keys() == ["a", "b", "b", "c"]


@pytest.mark.parametrize("keys", ["a", "ab"])
def test_a_table_that_lost_the_position_is_refused(keys: str) -> None:
    drops = Drops()
    for key in keys:
        drops.put(key)
        drops.run(moves=True)
    fresh, many = Drops(drops.url), len(keys)
    fresh.put("a", rows=["2"])
    with pytest.raises(NotPossible, match=f"the last plan in the table is none, the newest here has the number {many}"):
        fresh.run(moves=True)
    fresh.run(moves=True, go_on="none")
    fresh.put("c")
    fresh.run(moves=True, go_on="none")  # the option may stay
    assert (fresh.keys(), fresh.dropped()) == (["2", "c"], [])


def hostile(plan: Plan) -> Iterator[tuple[str, bytes]]:
    good = plan.encoded()
    said = json.loads(good)
    yield "forged", json.dumps({**said, "objects": [["stays", "t", 1]]}).encode()
    yield "huge", good + b" " * plans.MOST_BYTES
    yield "rubbish", b"\xff\x00"
    yield "deep", b"[" * 10_000
    yield "empty", b""


@pytest.mark.parametrize("kind", ["forged", "huge", "rubbish", "deep", "empty"])
def test_a_plan_that_others_have_changed_deletes_nothing(kind: str) -> None:
    drops = Drops()
    drops.put("a")
    published = list[str]()

    def until_published(seconds: float) -> object:
        published.extend(str(item.name) for item in drops.desk.folder.pending())
        return True

    drops.run(wait=until_published)
    (key,) = [item.key for item in drops.store.list("_bookkeeper/") if "/plan-" in item.key]
    plan = Plan.parse(drops.store.read(key), WatchPosition(1, key.split("-")[2].removesuffix(".json")))
    drops.put("stays")
    drops.store.replace(key, dict(hostile(plan))[kind])
    drops.ledger.tick()
    with pytest.raises(NotPossible, match=r"plan of watch/1/"):
        drops.run()
    assert drops.dropped() == ["a", "stays"] and drops.keys() == ["a"] and published


@pytest.mark.parametrize(
    "item",
    [["../x", "t", 1], ["/x", "t", 1], ["a/../../x", "t", 1], ["_bookkeeper/watch.json", "t", 1], ["a/.b", "t", 1],
     ["a", "", 1], ["a", "t" * 1000, 1], ["a", "t", -1], ["a", "t", True], ["a", "t"], ["a", 1, 1], "abc", None, {}],
)  # fmt: skip
def test_a_plan_has_only_objects_that_lie_below_its_prefix(item: object) -> None:
    data = json.dumps({"version": 1, "plan": 1, "run": "r", "objects": [item]}).encode()
    with pytest.raises(NotPossible):
        Plan.parse(data, WatchPosition(1, plans.digest_of(data)))


@pytest.mark.parametrize("sign", ["\x01", "\udcff"])
def test_a_plan_of_the_longest_keys_is_read_again(sign: str) -> None:
    folders = "/".join([sign * 199] * 4)
    objects = [Planned(f"{folders}/{number:04}{sign * 96}", '"' * 512, 2**40) for number in range(plans.MOST_OBJECTS)]
    assert max(len(item.key) for item in objects) == plans.MOST_KEY_BYTES
    plan = Plan(10**17, "r" * 40, objects)
    assert len(plan.encoded()) <= plans.MOST_BYTES
    assert Plan.parse(plan.encoded(), plan.position) == plan


def test_a_plan_is_what_it_was() -> None:
    plan = Plan(3, "run", [Planned("a\udcff", '"tag"', 7)])
    assert Plan.parse(plan.encoded(), plan.position) == plan
    assert WatchPosition.parse(plan.position.encoded(), NAME) == plan.position
    for other in (plan.position._replace(number=4), plan.position._replace(digest="0" * 32)):
        with pytest.raises(NotPossible):
            Plan.parse(plan.encoded(), other)


def bookkeeper(drops: Drops, refuses: Callable[[list[str]], bool], why: type[Exception] = FileMissing) -> Any:
    """A wait in which txlogs are rejected whose rows it refuses."""

    def wait(seconds: float) -> object:
        drops.desk.clock.wait(seconds)
        for item in drops.desk.txlogs():
            if refuses([row["key"] for row in drops.desk.rows(item.files)]):
                drops.ledger._reject(item, why("its file is gone"))  # type: ignore[arg-type]
        return drops.ledger.tick()

    return wait


def test_objects_of_a_rejected_txlog_are_tried_in_halves_and_a_bad_one_rests() -> None:
    drops, refused = Drops(), list[str]()
    drops.put("a", "bad", "c", "d", "e")

    def refuses(keys: list[str]) -> bool:
        refused.extend([",".join(keys)] if "bad" in keys else [])
        return "bad" in keys

    watcher = drops.run(wait=bookkeeper(drops, refuses))
    assert drops.keys() == ["a", "c", "d", "e"]
    assert drops.left() == ["bad"] and watcher.left == ["bad"]
    assert refused == ["a,bad,c,d,e", "a,bad", "bad"]
    drops.run()
    assert drops.keys() == ["a", "bad", "c", "d", "e"] and drops.left() == []


def test_a_bad_object_is_tried_again_after_its_rest_and_stops_no_other() -> None:
    drops, refused = Drops(), list[float]()
    begun = drops.desk.clock.now
    drops.put("bad")

    def refuses(keys: list[str]) -> bool:
        refused.extend([(drops.desk.clock.now - begun).total_seconds()] if keys == ["bad"] else [])
        return keys == ["bad"] and len(refused) < 4

    ticks = bookkeeper(drops, refuses)

    def wait(seconds: float) -> object:
        ticks(seconds)
        if seconds > 2:
            drops.put(f"{drops.desk.clock.now}")
        return drops.keys()[-1:] == ["bad"]

    drops.run(wait=wait, once=False)
    waits = [later - before for before, later in pairwise(refused)]
    assert [round(seconds / 60) for seconds in waits] == [1, 2, 4]
    assert len(drops.keys()) > 30


def test_objects_of_a_txlog_that_was_given_up_stay_and_are_loaded_again() -> None:
    """`bookkeeper discard` before the watcher looks: the marks pass over the txlog, and its rows are in no table."""
    drops, given_up = Drops(), list[TxlogName]()
    drops.put("a", "b")

    def wait(seconds: float) -> object:
        drops.desk.clock.wait(seconds)
        for item in [] if given_up else drops.desk.txlogs():
            drops.ledger.give_up(item)
            given_up.append(item.name)
        return drops.ledger.tick()

    drops.run(wait=wait)
    assert len(given_up) == 1 and drops.keys() == ["a", "b"]
    assert drops.dropped() == []


def test_a_txlog_that_lost_its_place_says_nothing_about_its_objects() -> None:
    drops, refused = Drops(), list[int]()
    drops.put("a", "b")

    def refuses(keys: list[str]) -> bool:
        refused.append(len(keys))
        return len(refused) == 1

    drops.run(wait=bookkeeper(drops, refuses, PositionTaken))
    assert drops.keys() == ["a", "b"] and refused == [2, 2]


def test_pauses_before_a_new_run_grow_only_until_something_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.watch.waiting.MOST_OBJECTS", 1)
    drops, refused = Drops(), list[bool]()
    drops.put(*"abcdef")

    def refuses(keys: list[str]) -> bool:
        refused.append(len(refused) % 3 < 2)
        return refused[-1]

    drops.run(wait=bookkeeper(drops, refuses, PositionTaken))
    assert drops.keys() == [*"abcdef"]
    assert [seconds for seconds in drops.desk.clock.waits if seconds >= 1] == [1.0, 2.0] * 6


@pytest.mark.parametrize("when", ["before", "between", "behind"])
def test_a_late_txlog_of_a_run_that_was_stopped_loses_or_is_the_only_one(when: str) -> None:
    """It comes before another run begins, while that one has read the same objects, and after it."""
    drops, stopped, publish = Drops(), list[Callable[[], object]](), Writer.publish
    drops.put("a", "b")

    def stop(self: Writer, *given: Any, **named: Any) -> Any:
        stopped.append(lambda: publish(self, *given, **named))
        raise NotPossible("stopped before its txlog")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "publish", stop)
        patch.setattr(Writer, "close", lambda self: None)
        with pytest.raises(NotPossible, match="stopped"):
            drops.run()
    (late,) = stopped
    drops.put("a", rows=["new"])
    if when == "before":
        late()
    drops.run(Faults().between("create folder/pending/", late) if when == "between" else None)
    if when == "behind":
        late()
        drops.ledger.tick()
    drops.put("last")
    drops.run()
    # behind: the version that was replaced before it was published is gone
    assert drops.keys() == [*(["b"] if when == "behind" else ["a", "b"]), "last", "new"]
    rejected = [drops.desk.folder.reason(item.name)["error"] for item in drops.desk.folder.rejected()]
    assert rejected == ([] if when == "before" else ["PositionTaken"])
    assert drops.dropped() == []


@pytest.mark.parametrize("other", [False, True], ids=["alone", "behind another"])
def test_what_a_run_that_stands_still_may_publish_is_not_set_aside(other: bool) -> None:
    """Who mends and drops again what was set aside would have its rows twice."""
    drops, stopped, publish = Drops(), list[Callable[[], object]](), Writer.publish
    drops.put("a")

    def stop(self: Writer, *given: Any, **named: Any) -> Any:
        stopped.append(lambda: publish(self, *given, **named))
        raise NotPossible("stopped before its txlog")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "publish", stop)
        patch.setattr(Writer, "close", lambda self: None)
        with pytest.raises(NotPossible, match="stopped"):
            drops.run()
    reading = Reading(2**20, kind="csv")
    if other:
        drops.store.create("b", b"key,timestamp\nb,2026-03-01T12:00:00Z\n")
    watcher = drops.run(reading=reading)
    for late in stopped:
        late()
    drops.ledger.tick()
    drops.run(reading=reading)
    set_aside = [key for key in drops.left() if key.endswith("-a")]
    assert (drops.keys(), len(set_aside)) == ((["b"], 1) if other else (["a"], 0))
    assert (watcher.left, drops.dropped()) == ([] if other else ["a"], [])


def test_a_plan_is_written_before_the_lease_is_held_for_the_last_time() -> None:
    """So who takes the lease over sees what may be published yet."""
    drops = Drops()
    drops.put("a")
    watcher = drops.watcher()
    steps = list[str]()

    class Held(NoLease):
        def hold(self, now: Any) -> bool:
            steps.append("plan" if "plan-1" in drops.own() else "hold")
            return True

    watcher._lease = Held()
    with pytest.MonkeyPatch.context() as patch:
        real = Writer.publish
        patch.setattr(Writer, "publish", lambda self, **given: (steps.append("publish"), real(self, **given))[1])
        watcher.run()
    assert steps[steps.index("publish") - 1] == "plan"


def test_an_object_at_which_the_program_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    drops, write = Drops(), Writer.write
    drops.put("a", "bad", "c")

    def fails(self: Writer, rows: Any, **more: Any) -> None:
        if "bad" in rows["key"].to_pylist():
            raise ZeroDivisionError
        write(self, rows, **more)

    monkeypatch.setattr(Writer, "write", fails)
    assert results(drops) == {"loaded": 2, "rejected": 1}
    assert drops.keys() == ["a", "c"]


def test_an_object_that_is_too_large_stays_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    drops = Drops()
    drops.store.create("large", ndjson("1") * 100)
    drops.put("a", "x" * 201)
    watcher = drops.run(reading=Reading(1000))
    assert drops.keys() == ["a"]
    assert watcher.left == ["large", "x" * 201] and watcher.figures.left == 2 and watcher.figures.waiting == 2
    assert [record.cause for record in caplog.records if record.levelname == "ERROR"] == [  # type: ignore[attr-defined]
        f"it has {len(ndjson('1')) * 100} bytes, and at most 1000 are taken (--max-object)",
        "its name has more than 200 bytes, or its path more than 900",
    ]


def unreadable(drops: Drops, *keys: str) -> Any:
    """The prefix, with objects that may not be read: those of another account, or encrypted with its key."""

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        found = act(*given, **named)
        refused = {key: StorageUnavailable(f"{key}: 403 AccessDenied") for key in keys}
        return {key: refused.get(key, it) for key, it in found.items()} if name == "read_versions" else found

    return WrappedStore(drops.store, around)


def test_an_object_that_may_not_be_read_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    drops = Drops()
    drops.put("a", "b", "c")
    with pytest.raises(StorageUnavailable, match="b: 403"):
        drops.run(store=unreadable(drops, "b"))
    assert (drops.keys(), drops.left()) == (["a", "c"], ["b"])
    assert [record.getMessage() for record in caplog.records].count("object is not taken") == 1
    drops.run()
    assert (drops.keys(), drops.left()) == (["a", "b", "c"], [])


def locked(drops: Drops, *keys: str) -> Any:
    """The prefix, with objects that do not go: they are under a lock, or in a directory of others."""

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name == "delete_if" and given[0] in keys:
            raise StorageUnavailable(f"{given[0]}: 403 AccessDenied")
        return act(*given, **named)

    return WrappedStore(drops.store, around)


@pytest.mark.parametrize("moves", [False, True], ids=["delete", "move"])
def test_an_object_that_may_not_be_deleted_stops_no_other_and_is_loaded_once(
    caplog: pytest.LogCaptureFixture, moves: bool
) -> None:
    drops = Drops()
    drops.put("a", "b", "c")
    for keys in (["d"], ["e", "f"], []):
        watcher = drops.watcher(store=locked(drops, "b"), moves=moves)
        with pytest.raises(StorageUnavailable, match="such as b"):
            watcher.run()
        assert watcher.left == ["b"] and drops.dropped() == ["b"]
        drops.put(*keys)
    assert drops.keys() == [*"abcdef"]
    assert "object is not taken" in [record.getMessage() for record in caplog.records]
    assert drops.own() == ["plan-3", "watch.json"]
    assert drops.run(moves=moves).left == [] and drops.dropped() == []
    assert (drops.keys(), drops.own()) == ([*"abcdef"], ["done-3", "watch.json"])


def test_what_replaced_an_object_that_may_not_be_deleted_is_loaded() -> None:
    drops = Drops()
    drops.put("a", "b")
    for row in ("b", "new"):
        drops.put("b", rows=[row])
        with pytest.raises(StorageUnavailable, match="such as b"):
            drops.run(store=locked(drops, "b"))
    drops.run()
    assert (drops.keys(), drops.dropped()) == (["a", "b", "new"], [])


def test_an_object_beside_one_that_may_not_be_deleted_rests_when_its_txlog_is_rejected() -> None:
    drops, rejected = Drops(), list[list[str]]()
    drops.put("b")

    def refuses(keys: list[str]) -> bool:
        rejected.extend([keys] if "c" in keys else [])
        assert len(rejected) < 9
        return "c" in keys

    with pytest.raises(StorageUnavailable, match="such as b"):
        drops.run(store=locked(drops, "b"))
    drops.put("c")
    watcher = drops.watcher(store=locked(drops, "b"), wait=bookkeeper(drops, refuses))
    with pytest.raises(StorageUnavailable, match="such as b"):
        watcher.run()
    assert watcher.left == ["b", "c"] and rejected == [["c"]] * len(rejected)


@pytest.mark.parametrize("data", [b"no rows", b""], ids=["bad", "empty"])
def test_an_object_without_rows_that_may_not_be_deleted_stops_no_other(data: bytes) -> None:
    drops = Drops()
    drops.put("a", "c")
    drops.store.create("b", data)
    assert drops.run(store=locked(drops, "b")).left == ["b"]
    assert (drops.keys(), drops.dropped()) == (["a", "c"], ["b"])


def test_where_many_objects_may_not_be_deleted_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.watch.prefix.MOST_STUCK", 1)
    drops = Drops()
    drops.put("a", "b")
    with pytest.raises(StorageUnavailable, match="403"):
        drops.run(store=locked(drops, "a", "b"))


def test_behind_an_object_of_a_keyed_table_that_may_not_be_read_nothing_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Writer, "keys", property(lambda writer: ["key"]))
    monkeypatch.setattr(Writer, "upsert", Writer.write)
    drops = Drops()
    drops.put("a", "b", "c")
    with pytest.raises(StorageUnavailable, match="b: 403"):
        drops.run(store=unreadable(drops, "b"))
    assert drops.left() == ["a", "b", "c"]


def test_an_object_that_is_young_is_waited_for() -> None:
    drops = Drops()
    drops.put("a")
    drops.desk.clock.now = drops.store.modified("a")
    drops.run(settle=timedelta(seconds=30))
    assert drops.keys() == ["a"]
    assert sum(drops.desk.clock.waits) >= 30


def test_an_object_that_is_dated_ahead_is_taken_once_it_stays_as_it_is() -> None:
    drops = Drops()
    drops.put("a", "b")
    days = timedelta(days=400)
    sizes = iter([1, 2])

    def ahead(found: list[Listed]) -> list[Listed]:
        dated = (item._replace(modified=item.modified + days) for item in found)
        return [item._replace(size=next(sizes, item.size)) if item.key == "b" else item for item in dated]

    waits = list[float]()

    def wait(seconds: float) -> object:
        waits.append(seconds)
        return len(waits) == 1000 or drops.wait(seconds)

    drops.run(store=listing(drops, ahead), settle=timedelta(seconds=30), wait=wait)
    assert len(waits) < 1000 and drops.keys() == ["a", "b"] and drops.dropped() == []
    assert sum(waits) >= 60  # for one that grew it has waited anew


def test_an_object_whose_name_is_no_key_stays_and_stops_no_other() -> None:
    drops = Drops()
    drops.put("a", "z")
    doubled = Listed("day=1//b", 7, drops.store.modified("a"))
    watcher = drops.run(store=listing(drops, lambda found: [doubled, *found]))
    assert (drops.keys(), watcher.left) == (["a", "z"], ["day=1//b"])


def test_an_object_whose_name_is_too_long_to_be_moved_stops_no_other() -> None:
    drops = Drops()
    drops.put("a", "b", "c")

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name == "create" and given[0].startswith("_done/") and given[0].endswith("/b"):
            raise StorageUnavailable("KeyTooLongError")
        return act(*given, **named)

    with pytest.raises(StorageUnavailable, match="cannot be deleted, such as b"):
        drops.run(moves=True, store=WrappedStore(drops.store, around))
    drops.put("d")
    with pytest.raises(StorageUnavailable, match="cannot be deleted, such as b"):
        drops.run(moves=True, store=WrappedStore(drops.store, around))
    assert (drops.keys(), drops.dropped()) == (["a", "b", "c", "d"], ["b"])


def test_objects_that_a_writer_before_has_moved_stay_beside_those_of_the_next() -> None:
    drops = Drops()
    for number in "123":
        if number != "3":
            drops.store.delete_many(
                [item.key for item in drops.store.list("_bookkeeper/")]
            )  # another writer takes over
            drops.desk = Drops().desk
            drops.ledger = Ledger(drops.desk)
        drops.put("a", rows=[number])
        drops.run(moves=True)
    assert drops.keys() == ["2", "3"]
    first, second, third = drops.left()
    assert (first, third) == ("_done/1/a", "_done/2/a") and second.startswith("_done/1/a.")
    assert [drops.store.read(key) for key in (first, second, third)] == [ndjson(number) for number in "123"]


def test_many_objects_that_may_not_be_read_stop_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("watcher", "waiting"):
        monkeypatch.setattr(f"writers.watch.{module}.MOST_OBJECTS", 2)
    drops = Drops()
    drops.put("a", "b", "c", "d")
    with pytest.raises(StorageUnavailable, match="403"):
        drops.run(store=unreadable(drops, "a", "b", "c"))
    assert (drops.keys(), drops.dropped()) == (["d"], ["a", "b", "c"])
    drops.run()
    assert drops.keys() == ["a", "b", "c", "d"]


def test_what_replaced_an_object_that_may_not_be_deleted_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    drops, waits, read, rows = Drops(), list[float](), list[str](), ObjectReader.rows
    monkeypatch.setattr(ObjectReader, "rows", lambda reader, key, data: read.append(key) or rows(reader, key, data))
    drops.put("a")

    def wait(seconds: float) -> object:
        waits.append(seconds)
        if len(waits) == 20:
            drops.put("a", rows=["new"])
            drops.put("b")
        return drops.wait(seconds) if len(waits) < 40 else True

    drops.run(store=locked(drops, "a"), wait=wait, once=False, every=timedelta(seconds=1))
    assert read == ["a", "a", "b"]


def test_an_instance_that_lost_its_lease_tells_of_nothing_that_waits() -> None:
    drops, times = Drops(), list[float]()
    drops.put("a")

    class Lost(NoLease):
        def hold(self, now: object) -> bool:
            return len(times) < 3

    def wait(seconds: float) -> object:
        times.append(seconds)
        drops.desk.clock.wait(seconds)  # no bookkeeper commits
        if len(times) == 3:
            seen.append(watcher.figures.waiting)
            assert watcher.writer_figures is not None
            watcher.writer_figures.waits()
        return len(times) > 100

    seen = list[int]()
    watcher = drops.watcher(wait=wait, once=False)
    watcher._lease = Lost()
    watcher.run()
    assert watcher.writer_figures is not None
    assert (seen, watcher.figures.waiting, watcher.figures.oldest) == ([1], 0, None)
    assert not watcher.writer_figures.waiting


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.watch.waiting.MOST_OBJECTS", 2)
    monkeypatch.setattr("writers.watch.waiting.MOST_LISTED", 4)
    drops = Drops()
    drops.put(*"abcdefg")
    drops.run()
    assert drops.keys() == [*"abcdefg"]
    assert drops.own() == ["done-4", "watch.json"]


def test_it_lists_once_in_each_interval() -> None:
    drops, lists = Drops(), list[timedelta]()
    begun = drops.desk.clock.now

    def wait(seconds: float) -> object:
        drops.wait(seconds)
        lists.append(timedelta(seconds=seconds) if seconds > 1 else timedelta(0))
        if sum(lists, timedelta(0)) % timedelta(seconds=20) == timedelta(seconds=5):
            drops.put(str(sum(lists, timedelta(0)) // timedelta(seconds=20)))
        return sum(lists, timedelta(0)) >= timedelta(seconds=60)

    drops.run(once=False, every=timedelta(seconds=20), wait=wait)
    assert drops.keys() == ["0", "1"]
    assert drops.desk.clock.now - begun >= timedelta(seconds=60)
