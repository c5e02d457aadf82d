"""A poisoned channel stops alone: after a reject channels are published one by one, and it rests longer each time."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.contract import txlog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import EntryInvalid, Fenced
from bookkeeper.tick import intake
from tests.support.desk import rows
from tests.support.lake import Clock, Lake
from tests.support.slots import offsets_of
from writers import Writer
from writers.publish.rests import MOST_REST, REST
from writers.publish.suspects import Suspects
from writers.timing import at_once

CHANNELS = [f"p{number}" for number in range(20)]
BAD = "p7"
LENGTH = 6


def rejected(error: str, *channels: str) -> Fenced:
    fenced = Fenced()
    fenced.rejected, fenced.channels = error, frozenset(channels)
    return fenced


def test_channels_are_published_together_until_a_txlog_of_them_is_rejected() -> None:
    suspects = Suspects()
    assert suspects.groups("abc", {}) == [["a", "b", "c"]]
    suspects.fenced(rejected("PositionTaken", "a", "b"))
    suspects.fenced(rejected(""))
    assert suspects.groups("abc", {}) == [["a", "b", "c"]]
    suspects.fenced(rejected("FileMissing", "a", "b"))
    assert suspects.groups("abc", {"a": "1"}) == [["c"], ["a"], ["b"]]
    assert suspects.groups("abc", {"a": "2"}) == [["a", "c"], ["b"]]
    assert suspects.groups("abc", {"a": "2", "b": "1"}) == [["a", "b", "c"]]


def test_more_channels_than_a_txlog_names_are_in_several() -> None:
    names = [f"p{number}" for number in range(2500)]
    assert [len(group) for group in Suspects().groups(names, {})] == [1000, 1000, 500]


def test_a_clock_that_is_put_back_makes_no_rest_longer_than_the_longest() -> None:
    clock = Clock()
    suspects = Suspects(clock)
    suspects.fenced(rejected("FileMissing", "a"))
    assert suspects.groups("a", {}) == [] and [*suspects.resting()] == ["a"]
    clock.move(days=-1)
    assert suspects.groups("a", {}) == [["a"]] and not suspects.resting()


def test_a_channel_that_was_rejected_alone_rests_twice_as_long_each_time_and_an_hour_at_most() -> None:
    clock, rested = Clock(), list[timedelta]()
    suspects = Suspects(clock)
    suspects.fenced(rejected("FileMissing", "a", "b"))
    for _ in range(8):
        suspects.groups("ab", {"b": "1"})
        suspects.fenced(rejected("FileMissing", "a"))
        assert suspects.groups("ab", {"b": "1"}) == [["b"]]
        (until,) = suspects.resting().values()
        rested.append(until - clock.now)
        clock.now = until
        assert ["a"] in suspects.groups("ab", {"b": "1"}) and not suspects.resting()
    assert rested[:3] == [REST, 2 * REST, 4 * REST] and rested[-1] == MOST_REST
    assert suspects.groups("ab", {"a": "1", "b": "2"}) == [["a", "b"]]


def test_of_many_channels_the_poisoned_one_alone_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its rows are good; meanwhile all others reach their end, in a few txlogs each."""
    lake, poisoned, names = Lake(tmp_path), [True], list[txlog.TxlogName]()
    rightly = intake.check

    def checked(found: txlog.Txlog, *given: object) -> object:
        if poisoned and BAD in found.offsets:
            raise EntryInvalid("its rows are bad")
        return rightly(found, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(intake, "check", checked)
    suspects = Suspects(lake.clock)

    def run() -> None:
        """A run of the writer: each channel is read by two rows a round, until the run is fenced or all is read."""
        with Writer.open(Folder(lake.store(lake.made.folder)), "slot-00", clock=lake.clock, at_once=at_once) as writer:
            for _ in range(LENGTH):
                for group in suspects.groups(CHANNELS, writer.committed_offsets()):
                    ends = {name: min(int(writer.offsets.get(name, "0")) + 2, LENGTH) for name in group}
                    starts = {name: int(writer.offsets.get(name, "0")) for name in group}
                    keys = [f"{name}-{at}" for name in group for at in range(starts[name] + 1, ends[name] + 1)]
                    if keys:
                        writer.write(
                            rows(*keys, at=lake.clock.now), offsets={name: str(end) for name, end in ends.items()}
                        )
                        names.append(writer.publish())  # type: ignore[arg-type]
                lake.tick(seconds=2)

    def runs(times: int) -> None:
        for _ in range(times):
            try:
                run()
            except Fenced as error:
                suspects.fenced(error)

    runs(6)
    good = sorted(f"{name}-{at}" for name in CHANNELS if name != BAD for at in range(1, LENGTH + 1))
    assert lake.keys() == good and BAD not in offsets_of(lake)
    assert len(names) < 120  # 20 channels of 3 txlogs would be 60 if each was alone all the time
    poisoned.clear()
    lake.clock.move(hours=1)
    runs(2)
    assert lake.keys() == sorted([*good, *(f"{BAD}-{at}" for at in range(1, LENGTH + 1))])
