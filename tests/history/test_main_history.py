"""Where on main a reader begins that wants what was committed since a moment: found once, for every reader."""

from datetime import datetime

import pytest
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.consumers.place_on_main import end, oldest, since
from bookkeeper.errors import PlaceExpired
from bookkeeper.history.main_history import MainHistory
from tests.support.table_metadata import line, minute, ref, snapshot, table


def equal_times() -> TableMetadata:
    first, second, third = line(3)
    return table(first, second.model_copy(update={"timestamp_ms": first.timestamp_ms}), third)


def clock_set_back() -> TableMetadata:
    first, second, third = line(3)
    return table(first, second.model_copy(update={"timestamp_ms": third.timestamp_ms + 1}), third)


#: the table, the moment, and the index of the first commit since
SINCE: dict[str, tuple[TableMetadata, datetime, int | None]] = {
    "before the first": (table(*line(3)), minute(0), 0),
    "at the first": (table(*line(3)), minute(1), 0),
    "between two": (table(*line(3)), minute(1.5), 1),
    "at the last": (table(*line(3)), minute(3), 2),
    "after the last": (table(*line(3)), minute(4), 3),
    "an empty table": (table(), minute(1), 0),
    "before the oldest that is kept": (table(*line(3)[1:]), minute(1), None),
    "at the oldest that is kept: its time may have been another's too": (table(*line(3)[1:]), minute(2), None),
    "after the oldest that is kept": (table(*line(3)[1:]), minute(2.5), 1),
    "after all that are kept": (table(*line(3)[1:]), minute(9), 2),
    "of equal times the first": (equal_times(), minute(1), 0),
    "a clock that was set back": (clock_set_back(), minute(2), 1),
    "beside a branch that is newer": (table(*line(2), snapshot(7, 1), head=2, side=ref(7, "branch")), minute(3), 2),
}


@pytest.mark.parametrize("case", SINCE)
def test_the_first_commit_since_a_moment_is_on_main_and_known_only_where_nothing_before_it_may_be_expired(
    case: str,
) -> None:
    metadata, moment, index = SINCE[case]
    history = MainHistory(metadata)
    assert history.first_since(moment) == index
    if index is None:
        with pytest.raises(PlaceExpired, match="is unknown"):
            since(history, moment)
        return
    place = since(history, moment)
    if index == 0:
        assert place == oldest(history)
    else:
        assert (place.snapshot, place.files) == (history.snapshots[index - 1].snapshot_id, None)
    assert (place == end(history)) == (index == len(history.snapshots))
