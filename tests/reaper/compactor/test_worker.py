"""The embedded compactor: the rows of a group in few files, published as a rewrite that the bookkeeper commits."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.contract.pending_rewrites import pending_rewrites
from bookkeeper.errors import StorageUnavailable
from reaper.compactor.pacing import Pacing, Stopped
from reaper.compactor.worker import CannotRewrite
from reaper.context import ReaperContext
from reaper.files.storage import Pace
from reaper.orphans import Orphan, find_orphans
from tests.reaper.compactor.stage import Stage
from tests.support.compactions import committed, rewritten, scanned
from tests.support.compactor import base_of, live
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import AFTER, BEFORE, MIDDLE, Faults
from tests.support.lake import Lake, Writes
from tests.support.main_moved import move_main

TARGET = "write.target-file-size-bytes"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", partition_by=())


def filled(lake: Lake, count: int = 4) -> Writes:
    writer, book = Writes(lake), lake.book()
    for number in range(count):
        writer.publish(f"k{number}", f"l{number}")
        lake.tick(book)
    return writer


def new_files(lake: Lake) -> list[Path]:
    """Files of compactors on the disk, whole or torn."""
    return [path for path in Path(lake.root).rglob("*.parquet") if re.search(r"-\d{5}$", path.stem)]


def test_small_files_become_one_with_the_same_rows(lake: Lake) -> None:
    writer = filled(lake)
    before, old = scanned(lake), live(lake)
    done = rewritten(lake)
    assert (done.new_files, done.rows, done.read_bytes) == (1, 8, sum(item.file.size_bytes for item in old))
    committed(lake)
    (new,) = live(lake)
    assert (scanned(lake), lake.keys()) == (before, sorted(writer.keys))
    assert (new.file.record_count, new.file.size_bytes, done.id in new.file.path) == (8, done.new_bytes, True)
    assert (new.file.sort_order_id, len(new.file.split_offsets or ())) == (0, 1)
    assert lake.operations()[-1] == "replace"


def test_new_files_are_in_their_partition_and_have_bounds(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    filled(lake)
    old = live(lake)
    rewritten(lake)
    committed(lake)
    (new,) = live(lake)
    assert new.file.partition == old[0].file.partition
    assert Path(new.file.path).parent.name == f"timestamp_day={lake.clock.now:%Y-%m-%d}"
    times = [int.from_bytes(item.file.lower_bounds[1], "little") for item in old]
    assert int.from_bytes(new.file.lower_bounds[1], "little") == min(times)
    assert new.file.value_counts[1] == 8


def test_it_rolls_to_a_new_file_at_the_tables_target_size(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "s", "type": "string"})
    for number in range(4):
        stage.put(stage.arrow(*({"s": f"{number} {row * 7919:x} {row * 104729:x}"} for row in range(500))))
    with stage.lake.table().transaction() as change:
        change.set_properties({TARGET: "4000"})
    stage.rewritten()
    sizes = [item.file.size_bytes for item in live(stage.lake)]
    assert len(sizes) > 2 and max(sizes) < 5_000


def test_a_group_that_just_fits_leaves_no_small_rest(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "s", "type": "string"})
    for number in range(4):
        stage.put(stage.arrow(*({"s": f"{number} {row * 7919:x} {row * 104729:x}"} for row in range(2000))))
    size = sum(item.file.size_bytes for item in live(stage.lake))
    with stage.lake.table().transaction() as change:
        change.set_properties({TARGET: str(size)})
    stage.rewritten()
    assert len(live(stage.lake)) == 1


def test_files_reach_the_target_size_however_well_their_rows_compress(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "s", "type": "string"})
    for number in range(8):
        stage.put(stage.arrow(*({"s": f"{number} {row * 7919:x} {row * 104729:x}" * 9} for row in range(2000))))
    with stage.lake.table().transaction() as change:
        change.set_properties({TARGET: "20000"})
    stage.rewritten()
    *full, _rest = (item.file.size_bytes for item in live(stage.lake))
    assert len(full) >= 2 and min(full) > 18_000 and max(full) < 24_000


def test_writers_and_compactors_may_work_at_once(lake: Lake) -> None:
    writer = filled(lake)
    rewritten(lake)
    writer.publish("meanwhile")
    committed(lake)
    assert (len(live(lake)), lake.keys()) == (2, sorted(writer.keys))


def test_files_of_an_older_partition_spec_stay_in_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "a", "type": "int"}, {"name": "b", "type": "string"}, partition_by=("b",))
    for number in range(3):
        stage.put(stage.arrow({"a": number, "b": "p"}), ("p",))
    with stage.lake.table().update_spec() as update:
        update.remove_field("b")
    assert [row["a"] for row in stage.rewritten()] == [0, 1, 2]
    (task,) = stage.lake.table().scan().plan_files()
    assert (task.file.spec_id, stage.lake.table().spec().spec_id, task.file.partition[0]) == (0, 1, "p")


def test_a_partition_whose_column_was_dropped_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "a", "type": "int"}, {"name": "b", "type": "string"}, partition_by=("b",))
    stage.put(stage.arrow({"a": 1, "b": "p"}), ("p",))
    files = live(stage.lake)
    with stage.lake.table().update_spec() as update:
        update.remove_field("b")
    with stage.lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("b")
    refused(stage.lake, "dropped a column of partition spec 0", files)


def test_data_files_outside_of_the_tables_location_are_rewritten_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", partition_by=())
    with lake.table().transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/elsewhere"})
    lake.drain()
    writer = filled(lake)
    rewritten(lake)
    committed(lake)
    (new,) = live(lake)
    assert new.file.path.startswith(f"file://{tmp_path}/elsewhere/")
    assert lake.keys() == sorted(writer.keys)


# -- what is refused


def refused(lake: Lake, text: str, files: Any = None, **given: Any) -> None:
    there = {path for path in Path(lake.root).rglob("*") if path.is_file() and "catalog.db" not in path.name}
    with pytest.raises(CannotRewrite, match=text):
        rewritten(lake, files, **given)
    assert {path for path in Path(lake.root).rglob("*") if path.is_file() and "catalog.db" not in path.name} == there


def changed(lake: Lake, **changes: Any) -> list[Any]:
    """The live files; of the last one the table's entry says something else."""
    files = live(lake)
    return [*files[:-1], files[-1]._replace(file=replace(files[-1].file, **changes))]


@pytest.mark.parametrize(
    "text, changes",
    [
        ("only Parquet files are rewritten here, it is ORC", {"file_format": "ORC"}),
        ("only Parquet files are rewritten here, it is AVRO", {"file_format": "AVRO"}),
        ("it is encrypted", {"key_metadata": b"k"}),
        ("up to 536870912 are read", {"size_bytes": 2**30}),
        ("the table says 100000", {"size_bytes": 100_000}),
        ("at most 100 are read", {"size_bytes": 100}),
        ("footer says 2 rows, the table says 3", {"record_count": 3}),
        ("is not there", {"path": "{data}/gone.parquet"}),
        ("neither below the table's location", {"path": "file:///etc/passwd"}),
        ("neither below the table's location", {"path": "{data}/../../../x.parquet"}),
        ("neither below the table's location", {"path": "{data}/../_bookkeeper/card.json"}),
    ],
)
def test_a_file_that_is_not_as_its_entry_says_is_refused_before_anything_is_left(
    lake: Lake, text: str, changes: dict[str, Any]
) -> None:
    filled(lake)
    if "path" in changes:
        changes = {"path": changes["path"].replace("{data}", lake.folder.card().data_path)}
    refused(lake, text, changed(lake, **changes))


def test_a_file_that_is_named_twice_is_refused(lake: Lake) -> None:
    filled(lake)
    refused(lake, "names it twice", [*live(lake), live(lake)[0]])


def test_a_group_that_is_too_much_in_memory_is_refused_and_names_its_largest_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, {"name": "a", "type": "string"})
    for text in ("x", "x" * 1000, "x"):
        stage.put(stage.arrow({"a": text}))
    files = live(stage.lake)
    monkeypatch.setattr("reaper.compactor.read_files.MOST_GROUP_BYTES", 1010)
    with pytest.raises(CannotRewrite, match="rows of more than 1010 bytes") as caught:
        rewritten(stage.lake)
    assert caught.value.path == files[1].file.path
    assert pending_rewrites(stage.lake.folder) == []


def test_a_base_with_delete_files_is_refused(lake: Lake) -> None:
    filled(lake)
    refused(lake, "delete files", base=base_of(lake, ["file:///d.parquet"]))


def test_an_unknown_spec_is_refused(lake: Lake) -> None:
    filled(lake)
    refused(lake, "no partition spec 7", spec_id=7)


@pytest.mark.parametrize("name", ["schema.name-mapping.default", "write.metadata.metrics.default"])
def test_a_property_that_is_not_understood_is_refused(lake: Lake, name: str) -> None:
    filled(lake)
    with lake.table().transaction() as change:
        change.set_properties({name: "garbage"})
    with pytest.raises(CannotRewrite, match="properties are not understood"):
        rewritten(lake)


def bad_bytes(stage: Stage) -> dict[str, bytes]:
    good = Path(live(stage.lake)[0].file.path.removeprefix("file://")).read_bytes()
    return {
        "empty of sense": b"PAR1" + bytes(1000) + b"PAR1",
        "cut": good[: len(good) // 2],
        "no footer": good[:-4],
        "another footer length": good[:-8] + b"\xff\xff\xff\x7f" + good[-4:],
        "a page damaged": good[:20] + bytes(byte ^ 0x55 for byte in good[20:60]) + good[60:],
    }


@pytest.mark.parametrize("kind", ["empty of sense", "cut", "no footer", "another footer length", "a page damaged"])
def test_a_damaged_file_costs_its_own_group_only(tmp_path: Path, kind: str) -> None:
    stage = Stage(tmp_path, {"name": "a", "type": "string"})
    for text in "xyz":
        stage.put(stage.arrow({"a": text * 50}))
    good = live(stage.lake)
    stage.put_bytes(bad_bytes(stage)[kind])
    refused(stage.lake, "own/7.parquet: ", live(stage.lake))
    rewritten(stage.lake, good)
    committed(stage.lake)
    assert len(live(stage.lake)) == 2


def test_a_page_whose_checksum_is_wrong_is_not_written_anew_as_a_good_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "a", "type": "long"})
    number = 0x0102030405060708
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True, "write_statistics": False}
    stage.put(stage.arrow({"a": number}), **plain)
    path = Path(live(stage.lake)[0].file.path.removeprefix("file://"))
    data = path.read_bytes()
    assert data.count(number.to_bytes(8, "little")) == 1
    path.write_bytes(data.replace(number.to_bytes(8, "little"), (number + 1).to_bytes(8, "little")))
    refused(stage.lake, "own/2.parquet: .*(CRC|checksum)")


def test_text_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "a", "type": "string"})
    wrong = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    kept = stage.arrow().schema.field("a").metadata
    stage.put(pa.table([wrong], schema=pa.schema([pa.field("a", pa.string(), metadata=kept)])))
    with pytest.raises(CannotRewrite, match=r"own/2.parquet: .*UTF8"):
        rewritten(stage.lake)


# -- crashes and errors


def act_on(lake: Lake, files: Any) -> Callable[[Faults], None]:
    def act(faults: Faults) -> None:
        rewritten(lake, files, open_store=lake.faulty(faults))

    return act


def test_a_crash_at_any_point_loses_no_row_and_what_it_leaves_is_found_by_the_orphan_sweep(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", partition_by=())
    writer = filled(lake)
    with lake.table().transaction() as change:
        change.set_properties({TARGET: "1"})  # a file for each row
    saved, files = lake.saved(), live(lake)
    points = list(crash_points(recorded(act_on(lake, files))))
    assert sum("upload" in str(point) for point in points) == 24
    assert str(points[-1]).endswith(".avro")
    for point in points:
        saved.restore()
        assert crashed(act_on(lake, files), point)
        created = point.operation.startswith("create folder/rewrites") and point.when == AFTER
        assert len(pending_rewrites(lake.folder)) == created
        committed(lake)
        assert lake.keys() == sorted(writer.keys), str(point)
        assert lake.operations()[4:] == ["replace"] * created, str(point)
        left = {f"file://{path}" for path in new_files(lake)}
        assert {item.location for item in swept(lake)} == (set() if created else left), str(point)
        assert created or left or point.number == points[0].number


def swept(lake: Lake) -> list[Orphan]:
    """What the orphan sweep would take in a week."""
    now = datetime.now(UTC) + timedelta(days=7)
    move_main(lake.catalog, lake.settings.identifier, now)
    return list(find_orphans(ReaperContext.of(lake.settings, lake.catalog, None, now), now).orphans)


@pytest.mark.parametrize("when", [BEFORE, MIDDLE, AFTER])
def test_after_an_error_before_the_publish_the_new_files_are_deleted(lake: Lake, when: str) -> None:
    filled(lake)
    with lake.table().transaction() as change:
        change.set_properties({TARGET: "1"})
    faults = Faults().on("-00003.parquet", when, StorageUnavailable, times=1)
    with pytest.raises(StorageUnavailable):
        rewritten(lake, open_store=lake.faulty(faults))
    assert (new_files(lake), pending_rewrites(lake.folder)) == ([], [])


@pytest.mark.parametrize("when", [BEFORE, MIDDLE, AFTER])
def test_once_the_create_was_sent_no_new_file_is_ever_deleted(lake: Lake, when: str) -> None:
    filled(lake)
    faults = Faults().on("create folder/rewrites", when, StorageUnavailable)
    with pytest.raises(StorageUnavailable):
        rewritten(lake, open_store=lake.faulty(faults))
    assert len(new_files(lake)) == 1
    assert not [seen for seen in faults.seen if seen.startswith("delete")]
    assert len(pending_rewrites(lake.folder)) == (when == AFTER)


def test_a_create_whose_reply_was_lost_arrives_late_and_is_committed(lake: Lake) -> None:
    writer = filled(lake)
    faults = Faults().on("create folder/rewrites", "late", StorageUnavailable)
    with pytest.raises(StorageUnavailable):
        rewritten(lake, open_store=lake.faulty(faults))
    faults.arrive()
    committed(lake)
    assert (len(live(lake)), lake.keys()) == (1, sorted(writer.keys))


def test_a_source_that_cannot_be_read_now_is_tried_again(lake: Lake) -> None:
    filled(lake)
    faults = Faults().on("read events/data/", BEFORE, StorageUnavailable, times=1)
    with pytest.raises(StorageUnavailable):
        rewritten(lake, open_store=lake.faulty(faults))
    rewritten(lake, open_store=lake.faulty(faults))
    committed(lake)
    assert len(live(lake)) == 1


# -- how fast, and when it stops


def test_it_stops_between_two_batches_and_leaves_nothing(lake: Lake) -> None:
    filled(lake)
    for asked in range(7):
        answers = iter([False] * asked + [True] * 99)
        with pytest.raises(Stopped):
            rewritten(lake, stopped=lambda answers=answers: next(answers))  # type: ignore[misc]
        assert (new_files(lake), pending_rewrites(lake.folder)) == ([], [])
    rewritten(lake, stopped=lambda: False)


def test_what_is_read_and_written_is_paid_for_in_time(lake: Lake) -> None:
    filled(lake)
    now = [0.0]

    def wait(seconds: float) -> None:
        assert seconds <= 1.0
        now[0] += seconds

    done = rewritten(lake, bytes_per_second=1000, pace=Pace(wait=wait), clock=lambda: now[0])
    assert now[0] == pytest.approx((done.read_bytes + done.new_bytes) / 1000)


def test_time_that_passes_by_itself_is_not_waited_for_and_is_no_credit() -> None:
    now, waited = [0.0], list[float]()
    pacing = Pacing(100, lambda: False, waited.append, lambda: now[0])
    pacing.spend(100)
    now[0] = 1.5
    pacing.spend(50)
    now[0] = 100.0
    pacing.spend(100)
    assert waited == [1.0, 0.5, 1.0]
    now[0] = 100.9
    pacing.spend(10)
    assert waited[3:] == [pytest.approx(0.2)]


def test_a_stop_ends_a_wait() -> None:
    waited = list[float]()
    pacing = Pacing(1, lambda: len(waited) >= 2, waited.append, lambda: 0.0)
    with pytest.raises(Stopped):
        pacing.spend(1000)
    assert waited == [1.0, 1.0]
