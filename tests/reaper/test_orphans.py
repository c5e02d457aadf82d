"""
Orphans go, twice unnamed and old; whatever is on its way from a writer into the table stays, however it is timed.
"""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import IdentityTransform

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Envelope, encode
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import HistoryChanged, NotPossible, Retry
from bookkeeper.format.entries import DataFile
from reaper import orphans
from reaper.context import ReaperContext
from reaper.files.disk_difference import DiskDifference
from reaper.run import sweep_orphans
from tests.support.disk import WRITES, Disk, mounted
from tests.support.lake import Lake as Queue
from tests.support.lake import Writes
from tests.support.reaper_faults import Faults
from tests.support.reaper_lake import REAPER, ReaperLake

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAME = TxlogName("w", "0190163d-8694-739b-aea5-966c26f8ad91", 1)


@pytest.fixture
def lake(tmp_path: Path) -> ReaperLake:
    found = ReaperLake(tmp_path, reaper=replace(REAPER, older_than=timedelta(days=3650)))
    for _ in range(3):
        found.append()
    return found


def at(lake: ReaperLake, now: datetime, faults: Faults | None = None) -> ReaperContext:
    stores = faults.stores(now) if faults else lake.stores(now)
    catalog = faults.catalog(lake.opened()) if faults else lake.opened()
    return ReaperContext.of(lake.settings, catalog, stores, now)


def sweep(lake: ReaperLake, now: datetime, faults: Faults | None = None, **how: Any) -> set[str]:
    """What a sweep deleted, by name."""
    gone = orphans.sweep(at(lake, now, faults), now, **how)
    return {path.rpartition("/")[2] for path in gone}


def swept_by_hand(lake: ReaperLake, now: datetime) -> dict[str, int]:
    return sweep_orphans(lake.opened(), lake.settings, now, open_store=lake.stores(now))


def place(lake: ReaperLake, key: str, age: timedelta, now: datetime | None = None) -> Path:
    """A file below the table that nothing names."""
    path = Path(lake.location) / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"1234")
    stamp(path, age, now or lake.now)
    return path


def stamp(path: Path, age: timedelta, now: datetime) -> None:
    seconds = (now - age).timestamp()
    os.utime(path, (seconds, seconds))


def test_an_old_unnamed_file_goes_when_two_sweeps_an_hour_apart_found_it(lake: ReaperLake) -> None:
    place(lake, "data/lost.parquet", 4 * DAY)
    assert sweep(lake, lake.now) == set()
    assert sweep(lake, lake.now + HOUR - timedelta(seconds=1)) == set()
    assert sweep(lake, lake.now + HOUR) == {"lost.parquet"}
    assert lake.reachable() <= lake.disk().keys()


def test_on_a_full_disk_what_an_earlier_sweep_found_goes_and_makes_room(lake: ReaperLake) -> None:
    path = place(lake, "data/lost.parquet", 4 * DAY)
    assert swept_by_hand(lake, lake.now) == {}
    with mounted(Disk(lambda _, call: call in WRITES and path.exists())):
        assert len(swept_by_hand(lake, lake.now + HOUR)) == 1


def test_a_young_file_stays_and_so_does_one_that_was_written_again(lake: ReaperLake) -> None:
    path = place(lake, "data/young.parquet", 3 * DAY - HOUR)
    sweep(lake, lake.now)
    assert sweep(lake, lake.now + HOUR) == set()
    sweep(lake, lake.now + 2 * HOUR)
    stamp(path, timedelta(0), lake.now + 2 * HOUR)
    sweep(lake, lake.now + 3 * HOUR)
    assert path.exists()


def test_a_file_that_was_named_in_between_is_counted_anew(lake: ReaperLake) -> None:
    path = place(lake, "data/lost.parquet", 4 * DAY)
    sweep(lake, lake.now)
    hide(lake, path, "pending")
    sweep(lake, lake.now + HOUR)
    (lake.folder_path / "pending" / str(NAME)).unlink()
    assert sweep(lake, lake.now + 2 * HOUR) == set()
    assert sweep(lake, lake.now + 3 * HOUR) == {"lost.parquet"}


def hide(lake: ReaperLake, path: Path, where: str) -> None:
    """A txlog that names the file."""
    file = DataFile(f"file://{path}", "PARQUET", (), 1, 4)
    data = encode(Envelope(NAME, "uuid", 1), lake.table().schema(), lake.table().spec(), [file])
    (lake.folder_path / where / str(NAME)).write_bytes(data)


@pytest.mark.parametrize("where", ["pending", "rejected"])
def test_what_a_txlog_names_stays(lake: ReaperLake, where: str) -> None:
    path = place(lake, "data/written.parquet", 9 * DAY)
    hide(lake, path, where)
    sweep(lake, lake.now)
    assert sweep(lake, lake.now + 2 * HOUR) == set()


@pytest.mark.parametrize("where", ["pending", "rejected"])
def test_a_txlog_that_cannot_be_read_stops_the_sweep_if_it_may_still_get_in(lake: ReaperLake, where: str) -> None:
    path = place(lake, "data/lost.parquet", 9 * DAY)
    sweep(lake, lake.now)
    (lake.folder_path / where / str(NAME)).write_bytes(b"no Avro")
    if where == "pending":
        with pytest.raises(Retry):
            sweep(lake, lake.now + HOUR)
    else:
        sweep(lake, lake.now + HOUR)
    assert path.exists() == (where == "pending")


def test_what_the_journal_names_is_the_journals(lake: ReaperLake) -> None:
    path = place(lake, "data/planned.parquet", 9 * DAY)
    (lake.folder_path / "reaper").mkdir(exist_ok=True)
    files = {kind: {} for kind in ("statistics", "manifests", "manifest_lists", "metadata")}
    about = {"version": 1, "table-uuid": "u", "planned-at": "", "sequence-number": 1, "refs": {}, "known": [1]}
    journal = {**about, "expire": [1], "files": {"data": {f"file://{path}": 4}, **files}}
    (lake.folder_path / "reaper/journal.json").write_text(json.dumps(journal))
    sweep(lake, lake.now)
    assert sweep(lake, lake.now + 2 * HOUR) == set()


@pytest.mark.parametrize(
    "key",
    [
        "notes.txt",
        "other/data.parquet",
        "_bookkeeper/data/x.parquet",
        "data/_committed",
        "data/.part/x",
        "data/_tmp/x.parquet",
        "metadata/version-hint.text",
        "metadata/00000-stranger.metadata.json",
        "metadata/00000-stranger.gz.metadata.json",
        "data/per%2Fcent.parquet",
    ],
)
def test_what_is_not_the_tables_own_kind_of_file_stays(lake: ReaperLake, key: str) -> None:
    path = place(lake, key, 99 * DAY)
    sweep(lake, lake.now)
    sweep(lake, lake.now + 2 * HOUR)
    assert path.exists()


def test_an_orphan_in_a_partition_whose_field_begins_with_an_underscore_goes(lake: ReaperLake) -> None:
    with lake.table().update_spec() as update:
        update.add_field("n", IdentityTransform(), "_n")
    place(lake, "data/_n=1/lost.parquet", 4 * DAY)
    place(lake, "data/_m=1/of-another.parquet", 4 * DAY)
    sweep(lake, lake.now)
    assert sweep(lake, lake.now + HOUR) == {"lost.parquet"}


def test_manifests_of_a_lost_attempt_go_once_main_has_moved_on(lake: ReaperLake) -> None:
    place(lake, "metadata/lost-m0.avro", timedelta(0), lake.now - timedelta(minutes=20))
    place(lake, "metadata/in-flight-m0.avro", timedelta(0), lake.now + timedelta(seconds=1))
    later = lake.now + 5 * DAY
    sweep(lake, later)
    assert sweep(lake, later + HOUR) == {"lost-m0.avro"}
    lake.now = later
    lake.append()
    sweep(lake, later + 2 * HOUR)
    assert sweep(lake, later + 3 * HOUR) == {"in-flight-m0.avro"}


FOLDED, REWRITTEN = f"{NAME.incarnation}-00001-deletes.parquet", f"00001-{NAME.incarnation}.parquet"


@pytest.mark.parametrize("name", [FOLDED, REWRITTEN])
def test_what_a_commit_under_way_may_still_name_stays_until_main_has_moved_on(lake: ReaperLake, name: str) -> None:
    """A bookkeeper that stood still for days just before its commit goes on: main is where its guard says."""
    path, later = place(lake, f"data/{name}", timedelta(minutes=20)), lake.now + 10 * DAY
    sweep(lake, later)
    assert sweep(lake, later + HOUR) == set()
    lake.now = later + HOUR
    lake.append()
    sweep(lake, later + 2 * HOUR)
    assert sweep(lake, later + 3 * HOUR) == {path.name}


def test_what_a_writer_left_goes_by_age_alone(lake: ReaperLake) -> None:
    later = lake.now + 10 * DAY
    place(lake, f"data/{SLOW}", timedelta(minutes=20))
    sweep(lake, later)
    assert sweep(lake, later + HOUR) == {SLOW}


def test_the_data_path_may_lie_elsewhere(lake: ReaperLake, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    lake.properties(write__data__path=f"file://{tmp_path}/elsewhere")
    path = tmp_path / "elsewhere" / "lost.parquet"
    path.write_bytes(b"1234")
    stamp(path, 9 * DAY, lake.now)
    sweep(lake, lake.now)
    assert sweep(lake, lake.now + HOUR) == {"lost.parquet"}


def test_nothing_goes_where_another_table_lies_below_the_data_path(lake: ReaperLake) -> None:
    beside = Path(lake.location).parent / "other"
    lake.catalog.create_table("demo.other", lake.table().schema(), location=f"file://{beside}")
    lake.properties(write__data__path=f"file://{Path(lake.location).parent}")
    live = place(lake, "../other/data/live.parquet", 9 * DAY)
    for now in (lake.now, lake.now + HOUR):
        with pytest.raises(orphans.OtherTable, match=r"other/metadata/.*metadata\.json"):
            sweep(lake, now)
    assert live.exists()


def test_an_age_below_an_hour_is_refused(lake: ReaperLake) -> None:
    with pytest.raises(NotPossible, match="at least 1 h"):
        sweep(lake, lake.now, older_than=timedelta(minutes=59))


def test_nothing_goes_while_gc_is_disabled(lake: ReaperLake) -> None:
    path = place(lake, "data/lost.parquet", 9 * DAY)
    sweep(lake, lake.now)
    lake.properties(gc__enabled="false")
    sweep(lake, lake.now + HOUR)
    assert path.exists()


def test_a_table_made_anew_finds_the_files_of_the_old_one_twice_too(lake: ReaperLake) -> None:
    place(lake, "data/lost.parquet", 9 * DAY)
    sweep(lake, lake.now)
    lake.catalog.drop_table("demo.events")
    lake.make()
    assert sweep(lake, lake.now + HOUR) == set()


def test_very_many_orphans_want_a_person(lake: ReaperLake) -> None:
    for number in range(120):
        place(lake, f"data/lost-{number}.parquet", 9 * DAY)
    sweep(lake, lake.now)
    with pytest.raises(orphans.ManyOrphans, match="120 files"):
        sweep(lake, lake.now + HOUR)
    assert len(sweep(lake, lake.now + HOUR, release_brake=True)) == 120


def test_a_run_sweeps_when_it_is_due_and_the_outlook_says_so_before(lake: ReaperLake) -> None:
    place(lake, "data/lost.parquet", 9 * DAY)
    lake.reap(now=lake.now + HOUR)
    assert lake.reap(now=lake.now + HOUR + timedelta(minutes=30)).orphans == 0
    (found,) = lake.outlook(lake.now + 2 * HOUR).orphans
    assert found.due(lake.now + 2 * HOUR) and "no snapshot, txlog or journal names it" in found.why(lake.now)
    assert lake.reap(now=lake.now + 2 * HOUR).orphans == 1


def test_the_difference_of_locations_is_exact_and_its_memory_bounded() -> None:
    with DiskDifference(in_memory=1000) as difference:
        for number in range(20_000):
            difference.add(f"file:///t/{number}", number)
        difference.subtract(f"file:///t/{number}" for number in range(0, 40_000, 2))
        assert sorted(facts for _, facts in difference.remaining()) == list(range(1, 20_000, 2))
        assert all(file._rolled for file in difference._added)


SLOW = f"{NAME.writer}-{NAME.incarnation}-{NAME.sequence:010d}-00001.parquet"


def timeline(lake: ReaperLake, publish: timedelta, commit: timedelta) -> Callable[[timedelta], set[str]]:
    """A writer's file from its last byte on; sweeps for six days. What was deleted."""
    file = lake.data_file(name=SLOW)
    path = Path(file.file_path.removeprefix("file://"))
    began = lake.now
    stamp(path, timedelta(0), began)
    gone: set[str] = set()
    for hour in range(0, 150, 4):
        now = began + hour * HOUR
        if hour * HOUR == publish:
            hide(lake, path, "pending")
        if hour * HOUR == commit:
            lake.now = now
            lake.append(file)
            (lake.folder_path / "pending" / str(NAME)).unlink()
        gone |= sweep(lake, now)
    return gone


def test_a_slow_writer_loses_no_file_however_late_it_is_committed(lake: ReaperLake) -> None:
    # Half the orphan age is the latest a writer publishes; the bookkeeper may have been down for days.
    assert timeline(lake, publish=36 * HOUR, commit=120 * HOUR) == set()
    assert len(lake.rows()) == 4


def test_a_writer_that_broke_its_own_rule_would(lake: ReaperLake) -> None:
    assert timeline(lake, publish=100 * HOUR, commit=200 * HOUR) == {SLOW}


def test_a_replay_of_an_old_rejected_txlog_loses_no_file_however_it_meets_a_sweep(lake: ReaperLake) -> None:
    file = lake.data_file(name="back.parquet")
    path = Path(file.file_path.removeprefix("file://"))
    stamp(path, 30 * DAY, lake.now)
    folder, now = Folder(at(lake, lake.now).folder), lake.now + 2 * HOUR
    quiet = lake.table()
    lake.append(file)
    after = lake.table().metadata_location

    def begin() -> None:
        """Rejected; and the adversary's luck: an earlier sweep has found it unnamed."""
        point_to(lake, quiet.metadata_location)
        hide(lake, path, "rejected")
        (lake.folder_path / "pending" / str(NAME)).unlink(missing_ok=True)
        seen = {f"file://{path}": lake.now.isoformat()}
        state = {"version": 1, "table-uuid": str(quiet.metadata.table_uuid), "at": lake.now.isoformat(), "seen": seen}
        (lake.folder_path / "reaper/orphans.json").write_text(json.dumps(state))

    def committed() -> None:
        point_to(lake, after)
        folder.delete([NAME])

    steps = [lambda: folder.replay(NAME), committed, lambda: folder.discard_rejected([NAME])]
    (lake.folder_path / "reaper").mkdir(exist_ok=True)
    begin()
    recorded = Faults()
    sweep(lake, now, recorded)
    count = 0
    first = recorded.calls.index("list")  # whatever happens before the disk is listed is the same
    for points in combinations_with_replacement(range(first, len(recorded.calls) + 1), len(steps)):
        begin()
        faults = Stepping(dict_of(points, steps))
        sweep(lake, now, faults)
        faults.finish()
        assert path.exists(), (points, faults.calls)
        count += 1
    assert count > 100


def point_to(lake: ReaperLake, metadata: str) -> None:
    """The catalog put back: the table is as it was."""
    with lake.catalog.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (metadata,))


def dict_of(points: Any, steps: Any) -> dict[int, list[Callable[[], object]]]:
    found: dict[int, list[Callable[[], object]]] = {}
    for point, step in zip(points, steps, strict=True):
        found.setdefault(point, []).append(step)
    return found


class Stepping(Faults):
    """Does others' steps right before the operations with these numbers."""

    def __init__(self, steps: dict[int, list[Callable[[], object]]]) -> None:
        super().__init__()
        self._steps = steps

    def around(self, name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        for step in self._steps.pop(len(self.calls), []):
            step()
        return super().around(name, act, *given, **named)

    def finish(self) -> None:
        for number in sorted(self._steps):
            for step in self._steps[number]:
                step()


@pytest.mark.parametrize("lost", ["}", "+00:00"])
def test_an_unreadable_state_of_a_sweep_begins_anew(lake: ReaperLake, lost: str) -> None:
    place(lake, "data/lost.parquet", 9 * DAY)
    sweep(lake, lake.now)
    state = lake.folder_path / "reaper/orphans.json"
    state.write_text(state.read_text().replace(lost, ""))
    assert sweep(lake, lake.now + HOUR) == set()
    assert sweep(lake, lake.now + 2 * HOUR) == {"lost.parquet"}
    assert datetime.fromisoformat(json.loads(state.read_text())["at"]).tzinfo == UTC


def test_nothing_goes_while_marks_json_knows_a_later_commit_than_the_table(tmp_path: Path) -> None:
    # The catalog was put back from a backup: what came after it would look like orphans.
    queue = Queue(tmp_path)
    writer, book = Writes(queue), queue.book()
    writer.publish("a")
    queue.tick(book)
    backup = queue.table().metadata_location
    writer.publish("b")
    queue.tick(book)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (backup,))
        catalog.commit()
    context = ReaperContext.of(queue.settings, open_catalog(queue.catalog_settings), queue.store, queue.clock.now)
    with pytest.raises(HistoryChanged, match=r"marks\.json knows a later commit"):
        orphans.find_orphans(context, queue.clock.now + 10 * DAY)
