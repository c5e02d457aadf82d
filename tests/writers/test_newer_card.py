"""Whether a table has changed is asked at most once a second."""

from datetime import timedelta
from pathlib import Path

from tests.support.writer_queue import Queue
from writers import Writer
from writers.newer_card import NewerCard
from writers.timing import utc_now


def test_it_is_asked_at_most_once_a_second(tmp_path: Path) -> None:
    lake, now = Queue(tmp_path), utc_now()
    with Writer.open(lake.made.folder, "w") as writer:
        newer = NewerCard(writer, lambda: now)
        assert newer.may_ask and not newer.ask()
        with lake.table().update_schema() as update:
            update.add_column("more", lake.table().schema().find_type("value"))
        lake.tick()

        assert not newer.may_ask and not newer.ask()
        now += timedelta(seconds=1)
        assert newer.ask()
        now -= timedelta(minutes=1)  # a clock that was put back
        assert newer.may_ask
