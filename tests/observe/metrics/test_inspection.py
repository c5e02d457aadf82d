"""Looking around a table: consumers, rejected/ and room, beside the ticks and in bounds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.history.registry import Registry, spark
from bookkeeper.observe.metrics.inspection import MOST_CONSUMERS, MOST_REJECTED, Inspected, Inspection, RejectedTxlog
from tests.support.checkpoints import Query, offset
from tests.support.lake import Lake, Writes, append_by_others
from tests.support.watched import Taken, Watched


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched()
    Writes(made.add(tmp_path, reload=600)).publish("a")
    made.turn()
    return made


@pytest.fixture
def lake(watched: Watched) -> Lake:
    return watched.lakes["events"]


def register(watched: Watched, name: str = "live") -> Query:
    lake = watched.lakes["events"]
    query = Query(lake.root / f"checkpoint-{name}")
    Registry(lake.folder.store).add(spark(name, query.url, watched.clock.now, by="command"))
    head = lake.table().metadata.current_snapshot_id
    return query.begin(offset(head, 9)).done(offset(head, 9))


def consumer(watched: Watched, what: str, **labels: str) -> float | None:
    return watched.value(f"bookkeeper_consumer_{what}", consumer="live", **labels)


def test_a_consumers_lag_is_told_in_snapshots_files_rows_bytes_and_seconds(watched: Watched, lake: Lake) -> None:
    query, writer = register(watched), Writes(lake, "w2")
    watched.look()
    assert [consumer(watched, f"lag_{what}") for what in ("snapshots", "rows", "seconds")] == [0, 0, 0]
    for keys in ("bc", "d"):
        writer.publish(*keys)
        watched.turn(seconds=60)
    watched.look()
    told = {what: consumer(watched, f"lag_{what}") for what in ("snapshots", "files", "rows", "seconds")}
    assert told == {"snapshots": 2, "files": 2, "rows": 3, "seconds": pytest.approx(60, abs=0.1)}
    assert (consumer(watched, "lag_bytes") or 0) > 1000
    assert consumer(watched, "state", state="live") == 1
    query.done(offset(lake.table().metadata.current_snapshot_id, 9))
    watched.look()
    assert consumer(watched, "lag_rows") == 0


def test_the_size_of_metadata_json_is_told_as_it_is_stored(watched: Watched, lake: Lake) -> None:
    assert watched.value("bookkeeper_metadata_bytes") is None
    watched.look()
    before = Path(lake.table().metadata_location.removeprefix("file://")).stat().st_size
    assert watched.value("bookkeeper_metadata_bytes") == before
    Writes(lake, "w2").publish("b")
    watched.turn()
    watched.look()
    assert (watched.value("bookkeeper_metadata_bytes") or 0) > before


def test_a_consumer_on_a_snapshot_that_others_just_made_is_not_cut_off(watched: Watched, lake: Lake) -> None:
    query = register(watched)
    append_by_others(lake, Writes(lake, "others").file(["x"]))  # our view is older than this
    query.done(offset(lake.table().metadata.current_snapshot_id, 9))
    watched.look()
    assert consumer(watched, "state", state="live") == 1
    query.done(offset(4711))
    watched.look()
    assert consumer(watched, "state", state="cut off") == 1
    assert consumer(watched, "state", state="live") is None
    assert consumer(watched, "lag_rows") == 2, "at least what the kept snapshots added"
    assert watched.of().inspection.behind is None, "one that is cut off may stay so for ever"


def test_of_one_consumer_whose_files_cannot_be_counted_only_the_lag_is_unknown(watched: Watched, lake: Lake) -> None:
    register(watched, "other")
    query = register(watched)
    writer = Writes(lake, "w2")
    name, data = writer.encoded([writer.file(["b"]), writer.file(["c"])])
    lake.folder.publish(name, data)
    watched.turn()
    snapshot = lake.table().metadata.current_snapshot()
    assert snapshot is not None
    query.done(offset(snapshot.snapshot_id, 1))  # half of it is read: its manifests must tell the rest
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    watched.look()
    assert (consumer(watched, "state", state="live"), consumer(watched, "lag_rows")) == (1, None)
    assert watched.value("bookkeeper_consumer_lag_rows", consumer="other") == 2
    assert watched.of().inspection.problem == ""


def test_a_consumer_that_is_unregistered_is_told_of_no_more(watched: Watched, lake: Lake) -> None:
    register(watched)
    watched.look()
    Registry(lake.folder.store).remove("live")
    watched.look()
    assert consumer(watched, "max_hold_used_ratio") is None


def test_what_cannot_be_looked_at_keeps_its_last_value_and_the_rest_goes_on(watched: Watched, lake: Lake) -> None:
    register(watched)
    watched.look()
    seen = watched.value("bookkeeper_looked_timestamp_seconds")
    watched.faults["events"].on("list folder/consumers", "before", StorageUnavailable)
    lake.put("rejected/w1.x.txlog.avro", b"x")
    watched.clock.move(minutes=1)
    watched.look()
    assert consumer(watched, "state", state="live") == 1
    assert watched.value("bookkeeper_rejected_txlogs") == 1
    assert watched.value("bookkeeper_looked_timestamp_seconds") == seen
    assert [trouble["alert"] for trouble in watched.troubles()] == ["BookkeeperTxlogRejected", "BookkeeperNotLooked"]
    watched.faults["events"].clear()
    watched.look()
    assert watched.value("bookkeeper_looked_timestamp_seconds") == watched.clock.now.timestamp()


def test_a_problem_that_two_looks_have_is_said_once(watched: Watched, lake: Lake) -> None:
    for key in ("consumers", "rejected"):
        watched.faults["events"].on(f"list folder/{key}", "before", lambda _: StorageUnavailable("away"))
    watched.look()
    assert watched.of().inspection.problem == "StorageUnavailable: away"


def test_of_many_only_so_many_have_figures_of_their_own_and_the_rest_are_counted(watched: Watched, lake: Lake) -> None:
    for number in range(MOST_CONSUMERS + 3):
        Registry(lake.folder.store).add(spark(f"c{number}", f"{lake.root}/{number}", watched.clock.now, by="command"))
    for number in range(MOST_REJECTED + 5):
        lake.put(f"rejected/w1.{number}.txlog.avro", b"x")
        watched.clock.move(seconds=1)
    watched.look()
    told = [name for name, _ in watched.samples() if name == "bookkeeper_consumer_state"]
    assert (len(told), watched.value("bookkeeper_consumers_omitted")) == (MOST_CONSUMERS, 3)
    assert watched.value("bookkeeper_rejected_txlogs") == MOST_REJECTED + 5
    newest = watched.of().inspection.newest
    assert [item.name for item in newest][:2] == ["w1.24.txlog.avro", "w1.23.txlog.avro"]
    assert len(newest) == MOST_REJECTED


def test_a_rejected_txlog_is_told_with_its_reason_also_after_a_restart(watched: Watched, lake: Lake) -> None:
    writer = Writes(lake, "bad")
    name, data = writer.encoded([writer.file(["torn"])])
    lake.folder.publish(name, data[:-30])
    watched.turn()
    before = watched.of().inspection.newest
    again = Watched(watched.clock)
    again.slots, again.lakes, again.faults = watched.slots, watched.lakes, watched.faults
    again.look()
    after = again.of().inspection.newest
    assert [(item.name, item.error, item.reason, item.hint) for item in before] == [
        (item.name, item.error, item.reason, item.hint) for item in after
    ]
    assert after[0].error == "TxlogCorrupt" and "under a new sequence" in after[0].hint


def test_room_is_told_of_the_local_disk_that_has_less_of_it(watched: Watched) -> None:
    watched.inspector.usage = lambda path: (100, 95, 5) if path.endswith("_bookkeeper") else (200, 20, 180)
    watched.look()
    assert watched.value("bookkeeper_disk_free_bytes") == 5
    assert watched.value("bookkeeper_disk_size_bytes") == 100
    assert [trouble["alert"] for trouble in watched.troubles()] == ["BookkeeperDiskLow"]


def test_a_standby_inspects_nothing(tmp_path: Path) -> None:
    watched = Watched()
    watched.add(tmp_path, lease=Taken())
    watched.turn()
    watched.look()
    assert watched.of().inspection.at is None


def _listings(watched: Watched, act: Callable[[], None]) -> int:
    before = len(watched.faults["events"].seen)
    act()
    return len([operation for operation in watched.faults["events"].seen[before:] if "load_table" in operation])


def test_a_look_asks_the_catalog_for_nothing_while_all_stand_where_they_should(watched: Watched) -> None:
    register(watched)
    assert _listings(watched, watched.look) == 0


def test_what_is_rejected_while_an_inspection_goes_on_is_counted_once(lake: Lake) -> None:
    early, late, gone = (RejectedTxlog(name, "TxlogCorrupt", "", "", lake.clock.now) for name in ("a", "b", "c"))
    inspected = Inspected()
    inspected.add(early)
    inspected.add(gone)

    def inspect(last: Inspection) -> Inspection:
        inspected.add(late)
        return replace(last, rejected=1, newest=(early,), names=frozenset({early.name}))

    assert inspected.now().rejected == 2
    inspected.replace(inspect)
    assert inspected.now().rejected == 2 and inspected.now().newest == (late, early)
    inspected.replace(lambda last: replace(last, rejected=1, newest=(late,), names=frozenset({late.name})))
    assert inspected.now().rejected == 1 and inspected.now().newest == (late,)
    inspected.add(early)
    inspected.replace(lambda last: last)  # rejected/ could not be listed
    assert inspected.now().rejected == 2 and inspected.now().newest == (early, late)
