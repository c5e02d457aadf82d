"""A short day: what `make day` shows in full, with consumers that walk as Spark's streams do."""

from pathlib import Path

from benchmarks.day import SIZES, opened


def test_a_day_of_commits_expiry_and_consumers_stays_bounded_and_loses_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, SIZES["toy"]) as day:
        rows = list(day.run())
        account = day.close()

    assert len(rows) == 8
    stopped = {hour: snapshots for hour, snapshots, *_ in rows}
    assert stopped["4"] > 90, "the consumer that stopped held them"
    assert max(stopped["6"], stopped["7"], stopped["8"]) < 80
    assert rows[-1][5] < 200, "data files on disk"
    for consumer in account["consumers"].values():
        assert consumer == {"rows": 960, "missing": 0, "double": 0}
    assert account["on disk, neither reachable nor logged nor pending"] == 0
    assert account["reachable, not on disk"] == 0
    assert account["snapshots expired"] > 500
