"""Decisions of a person about a keyed table."""

from pathlib import Path

import pytest

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog_folder import PENDING
from bookkeeper.tick import check_txlog
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path)


def test_accept_rollback_warns_of_a_lone_delete_half(lake: Lake, run) -> None:
    writer = Steps(lake)
    for value in "ab":
        writer.publish_steps(Step(upserts={1: value}))
        lake.tick()
    first, delete = lake.table().metadata.snapshots[1:3]
    assert delete.summary.operation.value == "delete"
    lake.table().manage_snapshots().set_current_snapshot(delete.snapshot_id).commit()
    assert state(lake) == {}
    assert run("once").exit_code == 3
    done = run("accept-rollback", "--yes")
    assert f"main stands on snapshot {delete.snapshot_id}, the delete half" in done.stderr
    assert f"Its parent, {first.snapshot_id}, has the old ones" in done.stderr


def test_accept_rollback_to_a_whole_commit_does_not(lake: Lake, run) -> None:
    writer = Steps(lake)
    for value in "ab":
        writer.publish_steps(Step(upserts={1: value}))
        lake.tick()
    first = lake.table().metadata.snapshots[1]
    lake.table().manage_snapshots().set_current_snapshot(first.snapshot_id).commit()
    done = run("accept-rollback", "--yes")
    assert done.exit_code == 0 and "delete half" not in done.stderr
    assert state(lake) == {1: "a"}


def test_discard_gives_up_a_rejected_txlog_that_holds_its_writer(lake: Lake, run) -> None:
    writer = Steps(lake)
    bad = writer.name.at(1)
    lake.put(f"{PENDING}{bad}", b"no txlog")
    lake.tick()
    writer.name = bad
    writer.publish_steps(Step(upserts={1: "b"}))
    lake.drain()
    assert state(lake) == {}
    done = run("discard", f"{bad.writer}.{bad.incarnation}", "--up-to", "1", "--yes")
    assert done.exit_code == 0, done.stderr
    lake.drain()
    assert state(lake) == {1: "b"}


def test_forget_takes_out_a_mark_from_the_year_10889_or_says_why_it_does_nothing(
    lake: Lake, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(check_txlog, "check_started", lambda *_: None)
        forged = Steps(lake)
        forged.name = TxlogName("k1", new_incarnation(2**48 - 1, bytes(10)), 0)
        forged.publish_steps(Step(upserts={1: "forged"}))
        lake.tick()
    Steps(lake, "k2").publish_steps(Step(upserts={2: "b"}))
    lake.tick()
    assert run("forget", "k1").exit_code == 0
    assert lake.view().marks.writer("k1").incarnations == {}
    nothing = run("forget", "k2")
    assert nothing.exit_code == 1 and "has no position to forget" in nothing.stderr
    Steps(lake).publish_steps(Step(upserts={1: "mine"}))
    lake.tick()
    assert (state(lake), lake.rejected()) == ({1: "mine", 2: "b"}, {})


def test_pending_and_status_say_that_a_writer_waits_behind_a_rejected_txlog(lake: Lake, asked) -> None:
    writer = Steps(lake)
    bad = writer.name.at(1)
    lake.put(f"{PENDING}{bad}", b"no txlog")
    lake.tick()
    writer.name = bad
    writer.publish_steps(Step(upserts={1: "b"}))
    writer.publish_steps(Step(upserts={1: "c"}))
    lake.drain()
    held, behind = asked("pending")
    assert f"{bad} of its writer was rejected" in held["held"] and "bookkeeper discard" in held["held"]
    assert behind["held"] == f"waits for {held['txlog']}"
    status = asked("status")
    assert (status["held"], status["rejected"]) == (1, 1) and "bookkeeper discard" in status["hint"]
