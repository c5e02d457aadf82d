"""The audit: each thing that can be wrong is found, named with its place, and nothing else is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from bookkeeper.commands.verify import ERROR, INFO, WARNING, Audit, Finding, repair, verify
from bookkeeper.contract import marks_json
from bookkeeper.contract.marks import PROPERTY, Mark, WriterMarks
from bookkeeper.contract.rewrite import decode, key_of
from bookkeeper.ledger.marks_publisher import MarksPublisher
from tests.support.compactor import base_of, commit, compacted, encoded, live, published
from tests.support.lake import Lake, Writes, append_by_others
from tests.tick.test_history import change


def found(lake: Lake) -> list[Finding]:
    return verify(lake.audit())


@pytest.fixture
def sound(lake: Lake, writer: Writes) -> Lake:
    """Three commits, nothing wrong."""
    for key in "abc":
        writer.publish(key)
        lake.tick()
    assert found(lake) == []
    return lake


def lying_snapshot(lake: Lake, operation: Operation, **counts: str) -> None:
    """A foreign snapshot, with the head's manifests and a summary of its own."""
    metadata = lake.table().metadata
    head = metadata.current_snapshot()
    said = {**head.summary.additional_properties, **{key.replace("_", "-"): value for key, value in counts.items()}}
    said = {key: value for key, value in said.items() if not key.startswith(("bookkeeper.", "added-"))} | {
        key.replace("_", "-"): value for key, value in counts.items()
    }
    snapshot = head.model_copy(
        update={
            "snapshot_id": metadata.new_snapshot_id(),
            "parent_snapshot_id": head.snapshot_id,
            "sequence_number": metadata.last_sequence_number + 1,
            "timestamp_ms": metadata.last_updated_ms + 1,
            "summary": Summary(operation, **said),
        }
    )
    move = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot.snapshot_id)
    change(lake, AddSnapshotUpdate(snapshot=snapshot), move)


def say_of_marks(lake: Lake, last: int) -> None:
    """Changes the mark without a commit of the bookkeeper."""
    marks = lake.view().marks
    [(writer, known)] = marks.writers.items()
    [(incarnation, mark)] = known.incarnations.items()
    wrong = WriterMarks(known.position, {incarnation: Mark(last, (), mark.seen_ms)})
    text = marks_json.dumps(replace(marks, writers={writer: wrong}))
    change(lake, SetPropertiesUpdate(updates={PROPERTY: text}))


def double(lake: Lake) -> None:
    file = Writes(lake, "foreign").file(["x"])
    append_by_others(lake, file)
    append_by_others(lake, file)


def hole(lake: Lake) -> None:
    change(lake, RemoveSnapshotsUpdate(snapshot_ids=[lake.table().metadata.snapshots[1].snapshot_id]))


def bad(lake: Lake) -> None:
    Writes(lake, "bad").publish("x", table_uuid="another")
    lake.tick()


WRONG: list[tuple[Callable[[Lake], Any], str, str]] = [
    (double, ERROR, "2 times"),
    (lambda lake: lying_snapshot(lake, Operation.REPLACE, total_data_files="2"), WARNING, "total-data-files = 2"),
    (lambda lake: lying_snapshot(lake, Operation.REPLACE, total_records="99"), WARNING, "total-records = 99"),
    (lambda lake: lying_snapshot(lake, Operation.REPLACE, total_files_size="1"), WARNING, "total-files-size = 1"),
    (lambda lake: lying_snapshot(lake, Operation.APPEND, added_data_files="1"), ERROR, "streams may lose rows"),
    (hole, WARNING, "streams behind it fail"),
    (lambda lake: say_of_marks(lake, 2), ERROR, "the marks do not say so"),
    (bad, WARNING, "rejected and not looked after"),
]


@pytest.mark.parametrize(("happens", "severity", "what"), WRONG)
def test_what_is_wrong_is_found_and_only_that(
    sound: Lake, happens: Callable[[Lake], Any], severity: str, what: str
) -> None:
    happens(sound)
    sound.book().publisher.publish(sound.view())
    findings = found(sound)
    assert [(item.severity, what in item.what) for item in findings] == [(severity, True)], findings
    assert findings[0].where and not findings[0].repair
    before = sound.table().metadata_location
    assert repair(sound.audit(), findings) == 0
    assert sound.table().metadata_location == before


def test_a_mark_that_is_ahead_of_the_table_is_found_by_its_pending_txlog(sound: Lake, writer: Writes) -> None:
    say_of_marks(sound, 4)
    name = writer.publish("d")
    findings = [item for item in found(sound) if "marks.json" not in item.what]
    assert [(item.severity, item.where, item.repair) for item in findings] == [(WARNING, str(name), "")]
    repair(sound.audit(), found(sound))
    assert sound.pending() == [str(name)]  # its rows may be nowhere else


def test_a_stale_marks_json_and_a_leftover_txlog_are_mended_when_told_to(sound: Lake, writer: Writes) -> None:
    data = writer.encoded([writer.file(["d"])])
    sound.folder.publish(*data)
    stale = sound.folder.store.read("marks.json")
    sound.tick()
    sound.put("marks.json", stale)
    sound.folder.publish(*data)
    assert [(item.severity, bool(item.repair)) for item in found(sound)] == [(WARNING, True), (INFO, True)]
    assert repair(sound.audit(), found(sound)) == 2
    assert (found(sound), sound.pending(), sound.keys()) == ([], [], ["a", "b", "c", "d"])


def test_a_leftover_txlog_whose_file_was_compacted_since_is_in_the_table(sound: Lake, writer: Writes) -> None:
    data = writer.encoded([writer.file(["d"])])
    sound.folder.publish(*data)
    sound.tick()
    commit(sound, compacted(sound, live(sound)))
    MarksPublisher(sound.book().ledger, sound.folder).publish(sound.view())
    sound.folder.publish(*data)
    assert [(item.severity, bool(item.repair)) for item in found(sound)] == [(INFO, True)]


class Busy(Audit):
    """An audit during which something happens, each time after the table's files were read."""

    happens: Callable[[], Any] = staticmethod(lambda: None)

    def read(self) -> None:
        super().read()
        self.happens()


def busy(lake: Lake, happens: Callable[[], Any]) -> list[Finding]:
    audit = Busy(lake.view(), lake.folder, lake.book().ledger, lake.settings)
    audit.happens = happens  # type: ignore[method-assign]
    return verify(audit)


def expired(lake: Lake, *ids: int) -> None:
    """Expires these snapshots, and deletes what only they name, as the reaper does."""
    gone = [item for item in lake.table().metadata.snapshots if item.snapshot_id in ids]
    change(lake, RemoveSnapshotsUpdate(snapshot_ids=[*ids]))
    for snapshot in gone:
        Path(snapshot.manifest_list.removeprefix("file://")).unlink()


def test_snapshots_that_expire_meanwhile_are_nothing_wrong(sound: Lake) -> None:
    head = sound.table().metadata.current_snapshot_id
    oldest = [item.snapshot_id for item in sound.table().metadata.snapshots if item.snapshot_id != head]
    assert busy(sound, lambda: expired(sound, *oldest)) == []
    assert len(sound.table().metadata.snapshots) == 1


def test_what_others_staged_or_have_in_a_branch_is_nothing_wrong_when_main_has_expired_past_it(
    sound: Lake, writer: Writes
) -> None:
    metadata = sound.table().metadata
    head, parent, made = metadata.current_snapshot(), metadata.current_snapshot_id, list[Any]()
    for number, said in enumerate([{"wap.id": "a"}, {}, {}], 1):
        update = {
            "snapshot_id": metadata.new_snapshot_id(),
            "parent_snapshot_id": parent,
            "sequence_number": metadata.last_sequence_number + number,
            "timestamp_ms": metadata.last_updated_ms + number,
            "summary": Summary(Operation.APPEND, **said),
        }
        made.append(head.model_copy(update=update))
        parent = parent if said else made[-1].snapshot_id
    branch = SetSnapshotRefUpdate(ref_name="audit", type="branch", snapshot_id=parent)
    change(sound, *(AddSnapshotUpdate(snapshot=item) for item in made), branch)
    for key in "de":
        writer.publish(key)
        sound.tick(seconds=11)
    own = [item.snapshot_id for item in sound.table().metadata.snapshots if item not in made]
    change(sound, RemoveSnapshotsUpdate(snapshot_ids=own[:-1]))

    assert found(sound) == []


def test_what_expired_snapshots_removed_is_not_known_and_no_trouble(sound: Lake, writer: Writes) -> None:
    name, data = writer.encoded([writer.file(["d"])])
    sound.folder.publish(name, data)
    sound.tick()
    head, *_ = reversed(sound.table().metadata.snapshots)
    oldest = [item.snapshot_id for item in sound.table().metadata.snapshots if item is not head][:2]
    sound.folder.publish(name, data)
    assert [item.severity for item in busy(sound, lambda: oldest and expired(sound, oldest.pop(0)))] == [INFO]


def test_the_head_of_the_audit_may_be_expired_before_it_is_read(sound: Lake, writer: Writes) -> None:
    late = sound.audit()
    writer.publish("more")
    sound.tick()
    expired(sound, *[item.snapshot_id for item in late.view.metadata.snapshots])
    assert verify(late) == []


def test_a_manifest_list_that_is_gone_without_an_expiry_is_found(sound: Lake) -> None:
    first = sound.table().metadata.snapshots[0]
    Path(first.manifest_list.removeprefix("file://")).unlink()
    findings = found(sound)
    assert [(item.severity, item.where) for item in findings] == [(ERROR, f"snapshot {first.snapshot_id}")]
    assert "its manifest list does not exist" in findings[0].what


def test_a_path_with_percent_signs_as_spark_writes_it_is_looked_up(sound: Lake) -> None:
    file = Writes(sound, "foreign").file(["x"])
    path = f"{sound.folder.card().data_path}/at=2026-01-01T10%3A00/x.parquet"
    place = Path(path.removeprefix("file://"))
    place.parent.mkdir()
    Path(file.path.removeprefix("file://")).rename(place)
    append_by_others(sound, replace(file, path=path))
    assert found(sound) == []
    place.unlink()
    assert [(item.severity, item.where, "does not exist" in item.what) for item in found(sound)] == [
        (ERROR, path, True)
    ]


def test_a_file_outside_of_the_table_is_said_and_the_others_are_checked(sound: Lake) -> None:
    elsewhere = replace(Writes(sound, "foreign").file(["x"]), path="file:///elsewhere/x.parquet")
    append_by_others(sound, elsewhere)
    assert [(item.severity, item.where) for item in found(sound)] == [(WARNING, elsewhere.path)]


def test_commits_that_go_on_meanwhile_are_nothing_wrong(sound: Lake, writer: Writes) -> None:
    def commit() -> None:
        writer.publish(f"more {writer.name.sequence}")
        sound.tick()
        writer.publish(f"pending {writer.name.sequence}")

    assert busy(sound, commit) == []


def test_a_commit_whose_marks_json_is_still_to_come_is_nothing_wrong(sound: Lake, writer: Writes) -> None:
    old = sound.folder.store.read("marks.json")
    writer.publish("d")
    sound.tick()
    new = sound.folder.store.read("marks.json")
    sound.put("marks.json", old)
    load = sound.book().ledger

    audit = Audit(sound.view(), sound.folder, load, sound.settings)
    later = audit.later
    audit.later = lambda: (sound.put("marks.json", new), later())[1]  # type: ignore[method-assign]

    assert verify(audit) == []


def test_a_marks_json_that_stays_behind_is_found_though_the_table_stands_still(sound: Lake, writer: Writes) -> None:
    old = sound.folder.store.read("marks.json")
    writer.publish("d")
    sound.tick()
    sound.put("marks.json", old)

    assert [item.what for item in found(sound)] == ["marks.json is not what the table says"]


def test_a_file_that_retention_drops_and_the_reaper_deletes_meanwhile_is_not_missing(sound: Lake) -> None:
    path = sound.table().inspect.files()["file_path"].to_pylist()[0].removeprefix("file://")

    def drop() -> None:
        sound.table().delete(f"key = '{dropped}'")
        Path(path).unlink(missing_ok=True)

    dropped = pq.read_table(path)["key"].to_pylist()[0]

    assert busy(sound, drop) == []


def test_a_file_that_is_missing_is_found_though_commits_go_on(sound: Lake, writer: Writes) -> None:
    path = sound.table().inspect.files()["file_path"].to_pylist()[0]
    Path(path.removeprefix("file://")).unlink()

    def commit() -> None:
        writer.publish(f"more {writer.name.sequence}")
        sound.tick()

    assert [(item.severity, item.where) for item in busy(sound, commit)] == [(ERROR, path)]


def missing(lake: Lake) -> list[tuple[str, str]]:
    return [(item.severity, item.where) for item in found(lake) if "neither in the table" in item.what]


def test_a_pending_txlog_that_was_deleted_is_found_before_and_after_the_next_tick(sound: Lake, writer: Writes) -> None:
    names = [writer.publish(key) for key in "def"]
    sound.folder.delete([names[1]])

    assert missing(sound) == [(WARNING, str(names[1]))]
    sound.tick()
    assert sound.pending() == [] and missing(sound) == [(WARNING, str(names[1]))]
    sound.folder.store.create(f"pending/{names[1]}", b"it turned up")
    assert missing(sound) == []


def test_the_first_txlogs_of_a_run_are_missed_too(sound: Lake) -> None:
    other = Writes(sound, "w2")
    names = [other.publish(key) for key in "xy"]
    sound.folder.delete(names[:1])

    assert missing(sound) == [(WARNING, str(names[0]))]


def test_a_rejected_txlog_is_not_missing(sound: Lake, writer: Writes) -> None:
    bad(sound)
    writer.publish("d", table_uuid="another")
    writer.publish("e")
    sound.tick()

    assert missing(sound) == [] and len(sound.rejected()) == 2


def of_rewrites(lake: Lake) -> list[Finding]:
    return [finding for finding in found(lake) if finding.where.endswith(".avro")]


def test_a_pending_rewrite_that_fits_is_no_finding(sound: Lake) -> None:
    published(sound, live(sound))
    assert found(sound) == []


@pytest.mark.parametrize(
    "breaks, what",
    [
        (lambda lake, path: path.unlink(), "does not exist"),
        (lambda lake, path: path.write_bytes(path.read_bytes() + b"x"), "bytes, the rewrite says"),
        (lambda lake, path: lake.clock.move(days=2), "was written too long ago"),
        (lambda lake, path: commit(lake, compacted(lake, live(lake)[:1])), "is live 0 times"),
    ],
    ids=["missing", "size", "old", "replaced file gone"],
)
def test_a_pending_rewrite_that_will_be_rejected_is_named_and_is_no_error(
    sound: Lake, breaks: Callable[[Lake, Path], Any], what: str
) -> None:
    rewrite_id = published(sound, live(sound))
    (path,) = Path(sound.root).rglob(f"{rewrite_id}-00001.parquet")
    breaks(sound, path)
    (finding,) = of_rewrites(sound)
    assert (finding.severity, finding.where, finding.repair) == (INFO, f"{rewrite_id}.avro", "")
    assert what in finding.what


def test_a_rewrite_whose_base_the_table_never_had_is_named(sound: Lake) -> None:
    base = base_of(sound)
    published(sound, live(sound), replace(base, snapshot_id=4711, sequence_number=base.sequence_number + 9))
    (finding,) = found(sound)
    assert "snapshot 4711 has not the sequence number" in finding.what


def test_a_rewrite_that_is_in_and_garbage_and_a_newer_version_are_told_apart(sound: Lake) -> None:
    rewrite_id, data = encoded(sound, live(sound))
    commit(sound, decode(rewrite_id, data, 2**20))
    sound.put(key_of(rewrite_id), data)
    sound.put("rewrites/garbage.avro", b"garbage")
    newer, data = encoded(sound, live(sound))
    sound.put(key_of(newer), data.replace(b"bookkeeper.version\x021", b"bookkeeper.version\x022"))
    findings = {finding.where: finding for finding in of_rewrites(sound)}
    assert findings[f"{rewrite_id}.avro"].what == "the rewrite is in the table and still pending"
    assert "RewriteCorrupt" in findings["garbage.avro"].what
    assert findings[f"{newer}.avro"].severity == WARNING
    assert not any(finding.repair for finding in findings.values())
