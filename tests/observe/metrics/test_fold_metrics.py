"""What an operator sees of a keyed table: deletes, what waits to be folded, and how folds end."""

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.folds import duty
from bookkeeper.folds.budget import OVER_BUDGET, Computed
from bookkeeper.folds.fold import plan_fold
from bookkeeper.folds.stats import EqualityDeletes, Look, unfolded
from bookkeeper.format.entries import DATA, EQUALITY_DELETES, POSITION_DELETES
from bookkeeper.manifests.reader import Manifests
from tests.support.folds import damaged, fold, live, paths
from tests.support.keyed import KEYED, Step, Upserts
from tests.support.lake import Lake, Writes
from tests.support.watched import Watched


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched()
    made.add(tmp_path, **KEYED)
    return made


@pytest.fixture
def lake(watched: Watched) -> Lake:
    return watched.lakes["events"]


@pytest.fixture
def writer(lake: Lake) -> Upserts:
    return Upserts(lake)


def files(watched: Watched) -> dict[str, float | None]:
    return {kind: watched.value("bookkeeper_delete_files", kind=kind) for kind in ("equality", "position")}


def there(lake: Lake) -> dict[str, float]:
    """The same, counted in the manifests."""
    return {"equality": len(live(lake, EQUALITY_DELETES)), "position": len(live(lake, POSITION_DELETES))}


def age(watched: Watched) -> float | None:
    return watched.value("bookkeeper_oldest_unfolded_delete_age_seconds")


def counted(watched: Watched, *names: str) -> list[float | None]:
    return [watched.value(f"bookkeeper_{name}_total") for name in names]


def shown(watched: Watched) -> Any:
    (table,) = watched.ask("/status.json")[1]["tables"]
    return table["deletes"]


def test_delete_files_are_counted_after_each_commit_and_the_oldest_ages(
    watched: Watched, lake: Lake, writer: Upserts
) -> None:
    assert (files(watched), age(watched)) == ({"equality": None, "position": None}, None)
    watched.turn()
    assert (files(watched), age(watched)) == ({"equality": 0, "position": 0}, 0)
    # More often than the duty looks.
    for value in "abc":
        writer.publish(value)
        watched.turn(seconds=0.5)
        assert files(watched) == there(lake)
    assert files(watched)["equality"] == 3
    assert age(watched) == pytest.approx(1, abs=0.1)
    watched.clock.move(seconds=20)
    assert age(watched) == pytest.approx(21, abs=0.1)
    assert [watched.value("bookkeeper_deletes", kind=kind) for kind in ("equality", "position")] == [3, 0]
    assert counted(watched, "deletes_committed", "files_committed") == [3, 3]


def removed(watched: Watched) -> list[float | None]:
    """Equality delete files, data files and rows that folds took out."""
    files = [watched.value("bookkeeper_fold_files_removed_total", kind=kind) for kind in ("equality", "data")]
    return files + counted(watched, "fold_rows_deleted")


def test_a_fold_is_counted_with_the_rows_and_files_it_deleted_and_its_time(
    watched: Watched, lake: Lake, writer: Upserts
) -> None:
    writer.publish("a", "b")
    watched.turn()
    writer.publish("c", "d")
    watched.turn()
    writer.publish("e")
    watched.turn(seconds=70)
    assert removed(watched) == [0, 0, 0]
    assert watched.value("bookkeeper_folds_total", outcome="committed") == 0
    watched.turn(seconds=5)
    assert files(watched) == there(lake) == {"equality": 0, "position": 1}
    # a and b with their file; c by its position
    assert removed(watched) == [3, 1, 3]
    assert watched.value("bookkeeper_folds_total", outcome="committed") == 1
    assert watched.value("bookkeeper_last_fold_seconds") == pytest.approx(5, abs=0.5)
    assert age(watched) == 0
    writer.publish("f", "g")
    watched.turn(3, seconds=70)
    # e with its file; d with the file in which c was deleted already, and counted
    assert removed(watched) == [4, 3, 5]
    assert shown(watched)["rows_deleted"] == 5 and shown(watched)["folds"] == 2
    watched.turn(3, seconds=70)
    assert watched.value("bookkeeper_folds_total", outcome="committed") == 2


def test_what_came_while_a_fold_was_planned_is_the_oldest_after_it(
    watched: Watched, lake: Lake, writer: Upserts
) -> None:
    watched.turn()
    (slot,) = watched.slots
    folds, begun = slot.book.duties.folds, deque[Callable[[], None]]()
    folds.spawn = lambda act, name: begun.append(act) is None
    writer.publish("a")
    watched.turn()
    begun.popleft()()
    watched.turn(seconds=70)
    writer.publish("b")
    watched.turn(seconds=10)
    writer.publish("c")
    watched.turn(seconds=10)
    assert files(watched) == there(lake) == {"equality": 3, "position": 0}
    assert age(watched) == pytest.approx(90, abs=0.5)
    begun.popleft()()
    assert not begun and folds.plan is None, "the next tick takes it"
    watched.turn(seconds=1)
    assert files(watched) == there(lake)
    assert files(watched)["equality"] == 2
    assert age(watched) == pytest.approx(11, abs=0.5)


def test_what_other_programs_fold_and_what_nothing_folds_is_known_too(
    watched: Watched, lake: Lake, writer: Upserts
) -> None:
    watched.turn()
    watched.slots[0].book.duties.folds.spawn = None
    writer.publish("a")
    watched.turn()
    assert files(watched) == {"equality": None, "position": None}  # nothing has looked yet
    watched.look()
    watched.turn()
    assert files(watched) == {"equality": 1, "position": 0}
    writer.publish("b")
    watched.turn(seconds=100)
    assert files(watched) == {"equality": 2, "position": 0}
    assert age(watched) == pytest.approx(101, abs=0.5)
    fold(lake)
    watched.turn(seconds=20)
    assert files(watched) == there(lake)
    assert age(watched) == 0


def test_a_fold_that_cannot_be_is_counted_by_why_and_shown_with_what_to_do(
    watched: Watched, lake: Lake, writer: Upserts
) -> None:
    writer.publish("a")
    watched.turn(2, seconds=70)
    mend = damaged(lake)
    writer.publish("b")
    watched.turn(3, seconds=70)
    reason = "a data file cannot be read"
    assert watched.value("bookkeeper_folds_refused_total", reason=reason) == 1
    assert list(shown(watched)["left"].values()) == [1] and watched.troubles() == []
    watched.turn(15, seconds=60)
    (said,) = watched.troubles()
    assert (said["alert"], said["severity"]) == ("BookkeeperFoldsBehind", "warning")
    assert said["what"].startswith("1 equality delete file not folded, the oldest for 17 min: a data file cannot be")
    assert "bookkeeper verify --table events" in said["do"]
    limit = watched.value("bookkeeper_oldest_unfolded_delete_age_limit_seconds")
    assert limit is not None and (age(watched) or 0) > limit
    mend()
    watched.turn(10, seconds=70)
    assert watched.troubles() == [] and shown(watched)["left"] == {} and age(watched) == 0


def test_a_fold_over_its_budget_is_shown_with_who_takes_it(
    watched: Watched, lake: Lake, writer: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(*given: Any) -> Computed:
        return Computed(None, dict.fromkeys(paths(live(lake, EQUALITY_DELETES)), OVER_BUDGET))

    monkeypatch.setattr(duty, "plan_fold", left)
    writer.publish("a")
    watched.turn(20, seconds=60)
    (said,) = watched.troubles()
    assert OVER_BUDGET in said["what"] and "spark_jobs.maintain" in said["do"]
    assert watched.value("bookkeeper_folds_refused_total", reason="it is more than a fold takes") == 2


@pytest.mark.parametrize(("error", "outcome"), [(None, "outdated"), (ZeroDivisionError("ours"), "failed")])
def test_a_fold_that_ends_otherwise_is_counted_by_how(
    watched: Watched,
    lake: Lake,
    writer: Upserts,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    outcome: str,
) -> None:
    writer.publish("a")
    watched.turn(1, seconds=70)
    watched.turn(1, seconds=70)

    def outrun(*given: Any) -> Computed:
        if error is not None:
            raise error
        computed = plan_fold(*given)
        fold(lake)  # another program was faster
        return computed

    monkeypatch.setattr(duty, "plan_fold", outrun)
    writer.publish("b")
    watched.turn(3, seconds=70)
    assert (watched.value("bookkeeper_folds_total", outcome=outcome) or 0) >= 1
    assert watched.value("bookkeeper_folds_total", outcome="committed") == 1


def test_an_append_only_table_has_none_of_these(tmp_path: Path) -> None:
    watched = Watched()
    Writes(watched.add(tmp_path)).publish("a")
    watched.turn(2, seconds=70)
    watched.look()
    named = {name for name, _ in watched.samples()}
    assert not {name for name in named if "delete" in name or "fold" in name}
    assert shown(watched) is None


def test_what_is_unfolded_is_right_whatever_the_look_was_of(watched: Watched, lake: Lake, writer: Upserts) -> None:
    for value in "ab":
        writer.publish(value)
        watched.turn()
    view = lake.view()
    assert unfolded(view, None, frozenset()) is None
    gone = Look(4711, 0, [(0, "gone")])
    found = unfolded(view, gone, frozenset())
    assert found is not None and found.files == 3  # until the next look
    assert unfolded(view, Look(4711, 0, []), frozenset()).files == 2  # type: ignore[union-attr]
    assert {item.file["content"] for item in live(lake)} == {DATA, EQUALITY_DELETES}
    writer.publish_steps(Step(deletes=[0, 1], shadow=False))
    watched.turn(3, seconds=70)
    assert unfolded(lake.view(), gone, frozenset()).files >= 0  # type: ignore[union-attr]


def test_each_delete_manifest_is_read_once(
    watched: Watched, lake: Lake, writer: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without equality deletes too, which folds leave."""
    read, real = Counter[str](), Manifests.contents

    def counting(reader: Manifests, manifests: Any) -> Any:
        for manifest, data in real(reader, manifests):
            read[manifest.manifest_path] += 1
            yield manifest, data

    known, ledger = EqualityDeletes(), lake.book().ledger
    for values in ("ab", "c"):
        writer.publish(*values)
        watched.turn()
    fold(lake)
    writer.publish("d")
    watched.turn(seconds=20)
    with monkeypatch.context() as patch:
        patch.setattr(Manifests, "contents", counting)
        for _ in range(3):
            known = known.seen(ledger, lake.view())
            assert len(known.files) == 1
    assert len(read) == 2 and set(read.values()) == {1}
