"""Delete files that no fold can read and that are live all the same: found, and taken out when told to."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.commands.odd_deletes import drop, odd_delete
from bookkeeper.commands.verify import ERROR, Finding, verify
from bookkeeper.errors import CommitConflict, FoldOutdated, NotPossible, StorageUnavailable
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.history.main_history import counted
from tests.support.faults import AFTER, BEFORE, Crash, Faults, Rule
from tests.support.folds import fold, live, paths
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import rows
from tests.support.lake import Lake
from tests.tick.test_bad_deletes import rewritten


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Keys 1 to 4, of which 2 and 3 are deleted, each by a file of its own."""
    return made(tmp_path)


def made(root: Path) -> Lake:
    lake = keyed_lake(root, check_files=False)
    writer = Steps(lake)
    writer.publish_rows({1: "a", 2: "b", 3: "c", 4: "d"})
    lake.tick()
    writer.publish_steps(Step(deletes=[2]), Step(deletes=[3]))
    lake.tick()
    return lake


def odd(lake: Lake, table: pa.Table | None = None) -> str:
    """Makes the first delete file one with another number of rows, of the same size in bytes; its location."""
    path = min(paths(live(lake, EQUALITY_DELETES)))
    local = Path(path.removeprefix("file://"))
    size, out = local.stat().st_size, io.BytesIO()
    schema = pa.schema([pa.field("id", pa.int64(), False, {"PARQUET:field_id": "1"})])
    pq.write_table(pa.table([pa.array([2, 5])], schema=schema), out, store_schema=False)
    footer = int.from_bytes(out.getvalue()[-8:-4], "little") + 8
    whole = out.getvalue()
    # Bytes between the pages and the footer are read by nothing.
    local.write_bytes(whole[:-footer] + bytes(size - len(whole)) + whole[-footer:])
    return path


def seen(lake: Lake) -> list[tuple[int, str]]:
    return sorted((row["id"], row["op"]) for row in rows(lake))


def found(lake: Lake) -> list[Finding]:
    return verify(lake.audit())


def test_verify_names_an_odd_delete_file_and_the_command(lake: Lake) -> None:
    assert found(lake) == []
    path = odd(lake)
    ((severity, what, where),) = [(item.severity, item.what, item.where) for item in found(lake)]
    assert (severity, where) == (ERROR, path)
    assert "its footer says 2 rows, its entry says 1" in what and "drop-delete-file" in what


def test_an_odd_delete_file_is_taken_out_and_its_rows_come_back(lake: Lake, run: Any) -> None:
    path = odd(lake)
    assert sorted(fold(lake).left) == [path]
    before = lake.table().current_snapshot()
    dry = run("drop-delete-file", path)
    assert dry.exit_code == 0 and "in the table again" in dry.stderr and "2 rows, the table says 1" in dry.stdout
    assert lake.table().current_snapshot() == before
    done = run("drop-delete-file", Path(path).name, "--yes")
    assert done.exit_code == 0, done.stderr
    assert live(lake, EQUALITY_DELETES) == [] and seen(lake) == [(1, "U"), (2, "D"), (2, "U"), (4, "U")], (
        "its tombstone too"
    )
    head = lake.table().current_snapshot()
    assert head.summary.operation.value == "delete" and counted(head, "removed-equality-delete-files") == 1
    assert counted(head, "added-data-files") == counted(head, "deleted-data-files") == 0
    assert found(lake) == []
    Steps(lake, "next").publish_steps(Step(deletes=[2]))
    lake.tick()
    fold(lake)
    assert seen(lake) == [(1, "U"), (4, "U")]


def test_a_delete_file_that_can_be_read_or_is_none_is_refused(lake: Lake) -> None:
    ledger, view = lake.book().ledger, lake.view()
    with pytest.raises(NotPossible, match="can be read, so a fold applies it"):
        odd_delete(ledger, view, min(paths(live(lake, EQUALITY_DELETES))))
    for path in (min(paths(live(lake, 0))), "nowhere.parquet", ""):
        with pytest.raises(NotPossible, match="has no such delete file"):
            odd_delete(ledger, view, path)


def test_a_null_as_key_of_a_version_that_did_not_look_is_folded(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path, check_files=False)
    Steps(lake).publish_rows({1: "a", 3: "c"})
    lake.tick()
    field = pa.field("id", pa.int64(), True, {"PARQUET:field_id": "1"})
    nulls = rewritten(pa.table([pa.array([1, None])], schema=pa.schema([field])), null_value_counts={1: 1})
    lake.folder.publish(*nulls(Steps(lake, "earlier")))
    lake.tick(lake.book(check_files=False))
    assert len(live(lake, EQUALITY_DELETES)) == 2 and found(lake) == []
    assert fold(lake).left == {} and live(lake, EQUALITY_DELETES) == []
    assert [key for key, _ in seen(lake)] == [2, 3]


def test_storage_that_does_not_answer_makes_no_file_odd(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise StorageUnavailable("503")
        yield

    monkeypatch.setattr("bookkeeper.folds.read.read_files", failing)
    with pytest.raises(StorageUnavailable):
        odd_delete(lake.book().ledger, lake.view(), min(paths(live(lake, EQUALITY_DELETES))))


def test_a_drop_beside_other_commits_takes_out_the_file_or_nothing(lake: Lake) -> None:
    path, book = odd(lake), lake.book()
    chosen = odd_delete(book.ledger, lake.view(), path)
    Steps(lake, "next").publish_rows({9: "z"})
    lake.tick()
    drop(book.folder, book.publisher, chosen)
    assert seen(lake) == [(1, "U"), (2, "D"), (2, "U"), (4, "U"), (9, "U")]
    with pytest.raises(FoldOutdated, match="not live any more"):
        drop(book.folder, book.publisher, chosen)
    assert issubclass(FoldOutdated, CommitConflict)


def test_a_crash_at_any_operation_of_a_drop_leaves_the_table_with_the_file_or_without_it(tmp_path: Path) -> None:
    faults = Faults()
    recorded = made(tmp_path / "recorded")
    drop_odd(recorded, faults)
    without = [(1, "U"), (2, "D"), (2, "U"), (4, "U")]
    outcomes = []
    for number in range(len(faults.seen)):
        for when in (BEFORE, AFTER):
            lake = made(tmp_path / f"{number}-{when}")
            rule = Rule(lambda at, _, number=number: at == number, when, lambda _: Crash())
            with pytest.raises(Crash):
                drop_odd(lake, Faults([rule]))
            lake.drain()
            outcomes.append(len(live(lake, EQUALITY_DELETES)))
            if outcomes[-1] == 2:
                drop_odd(lake, Faults())
            assert seen(lake) == without
            assert found(lake) == [], "also marks.json is as it should be"
    assert {*outcomes} == {1, 2}


def drop_odd(lake: Lake, faults: Faults) -> None:
    path = odd(lake)
    book = lake.book(faults)
    drop(book.folder, book.publisher, odd_delete(lake.book().ledger, lake.view(), path))
