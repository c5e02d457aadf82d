"""
What is seen from outside: txlogs before they are gone, close logs as far as they are written.
"""

import json
from pathlib import Path

from demo.observer import Counts, logged
from demo.pending import PendingWatch
from demo.table import spans
from tests.demo import observed as seen


def test_a_txlog_is_kept_once_with_its_bytes(tmp_path: Path) -> None:
    pending = PendingWatch(tmp_path)
    (tmp_path / seen.txlog("writer-1", 1)).write_bytes(b"one")
    (tmp_path / "something.tmp").write_bytes(b"other")
    pending.look()
    pending.look()
    assert [(str(txlog.name), txlog.data) for txlog in pending.take()] == [(seen.txlog("writer-1", 1), b"one")]
    assert pending.take() == [] and pending.now == 1


def test_a_txlog_that_is_gone_stays_known(tmp_path: Path) -> None:
    pending = PendingWatch(tmp_path)
    path = tmp_path / seen.txlog("writer-1", 1)
    path.write_bytes(b"one")
    pending.look()
    path.unlink()
    pending.look()
    assert len(pending.take()) == 1 and pending.now == 0


def test_a_line_of_a_close_log_names_every_key() -> None:
    line = {"name": seen.txlog("writer-1", 2), "rows": 2, "first": 9, "last": 10, "closed_ms": 5, "published_ms": 6}
    run = seen.RUNS["writer-1"]
    item = logged(json.loads(json.dumps(line)))
    assert item.keys == [f"writer-1/{run}/000000000009", f"writer-1/{run}/000000000010"]
    assert item.logged and (item.closed_ms, item.published_ms) == (5, 6)


def test_a_summary_names_every_txlog_of_its_spans_and_may_be_cut() -> None:
    run = seen.RUNS["writer-1"]
    names = [str(name) for name in spans(f"writer-1.{run}:2-4 ...")]
    assert names == [seen.txlog("writer-1", number) for number in (2, 3, 4)]


def test_it_is_settled_when_all_that_was_published_is_consumed() -> None:
    assert Counts(published=3, committed=3, consumed=3).settled
    assert not Counts(published=3, committed=3, consumed=2).settled
    assert not Counts(published=3, committed=2, consumed=3).settled
    assert not Counts(pending=1, published=3, committed=3, consumed=3).settled
