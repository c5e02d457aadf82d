"""The same on every storage that there is, and what leases do there."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import NotPossible
from bookkeeper.stores.store import Store
from tests.stores.conftest import store, stores
from tests.watch.drops import Drops
from writers.watch.command import lease_of
from writers.writer import Writer

__all__ = ["store", "stores"]


@pytest.mark.parametrize("moves", [False, True])
def test_versions_are_loaded_once_and_gone_on_every_storage(store: Store, moves: bool) -> None:
    drops = Drops(store=store)
    drops.put("a", "day=1/b c", "d?e")
    store.create("bad", b"none")
    store.create("empty", b"")
    drops.run(moves=moves)
    drops.put("a", rows=["second"])
    drops.run(moves=moves)
    assert drops.keys() == ["a", "d?e", "day=1/b c", "second"]
    assert [key for key in drops.left() if key != ".lock" and not key.startswith(("_done/", "_rejected/"))] == []
    done = [key for key in drops.left() if key.startswith("_done/")]
    assert len(done) == (5 if moves else 0)
    assert len([key for key in drops.left() if key.startswith("_rejected/")]) == 2


def test_of_two_instances_one_works_and_the_other_takes_over(tmp_path: Path) -> None:
    drops = Drops(f"file://{tmp_path}")
    first, second = lease_of(drops.store), lease_of(drops.store)
    now = datetime.now(UTC)
    assert first.hold(now)
    drops.put("a")
    waits = list[float]()

    def wait(seconds: float) -> object:
        waits.append(seconds)
        if len(waits) == 3:
            first.release()
        return drops.wait(seconds)

    watcher = drops.watcher(wait=wait)
    watcher._lease = second
    watcher.run()
    assert waits[:3] == [1.0] * 3 and drops.keys() == ["a"]
    assert first.hold(now)  # it was given back


def test_once_ends_where_another_instance_works(tmp_path: Path) -> None:
    drops = Drops(f"file://{tmp_path}")
    other = lease_of(drops.store)
    assert other.hold(datetime.now(UTC))
    watcher = drops.watcher()
    watcher._lease = lease_of(drops.store)
    with pytest.raises(NotPossible, match="another instance watches"):
        watcher.run()
    assert len(drops.desk.clock.waits) == 30


def test_an_instance_that_lost_its_lease_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drops = Drops(f"file://{tmp_path}")
    drops.put("a")
    watcher, written = drops.watcher(wait=lambda seconds: True), Writer.write

    def write(self: Writer, *given: Any, **named: Any) -> None:
        written(self, *given, **named)
        (tmp_path / "_bookkeeper" / "lease").unlink()
        assert other.hold(datetime.now(UTC))

    other = lease_of(drops.store)
    watcher._lease = lease_of(drops.store)
    monkeypatch.setattr(Writer, "write", write)
    watcher.run()
    assert drops.desk.txlogs() == [] and drops.left() == ["a"]


def test_unfinished_files_of_a_killed_watcher_go_at_the_next_start_and_what_it_hid_comes_back(tmp_path: Path) -> None:
    drops = Drops(f"file://{tmp_path}")
    drops.run()
    (tmp_path / "_bookkeeper" / "plan-1-x.json.0123456789ab.tmp").write_bytes(b"half")
    (tmp_path / "mine.tmp").write_bytes(b"")
    drops.put("b")
    (tmp_path / "b").rename(tmp_path / ".b.deleting")
    drops.run()
    assert drops.keys() == ["b"]
    assert not [*tmp_path.rglob(".*.deleting"), *tmp_path.rglob("*.tmp")]


def test_a_link_below_the_prefix_is_not_followed(tmp_path: Path) -> None:
    outside, prefix = tmp_path / "outside", tmp_path / "drops"
    outside.write_bytes(b'{"timestamp":"2026-03-01T12:00:00Z","key":"secret"}\n')
    prefix.mkdir()
    (prefix / "link").symlink_to(outside)
    drops = Drops(f"file://{prefix}")
    drops.put("a")
    watcher = drops.run()
    assert drops.keys() == ["a"] and watcher.left == ["link"] and outside.exists()
