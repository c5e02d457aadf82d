"""The simulation itself: fixed seeds, seeds that once failed, and that a failure becomes a short story."""

from random import Random

import pytest

from bookkeeper import errors
from tests.simulation import coverage
from tests.simulation.coverage import report, wanted
from tests.simulation.decoder import Wrong
from tests.simulation.events import events as events_of
from tests.simulation.play import play, shrink
from tests.simulation.schedule import Event
from tests.simulation.world import World

#: seeds, and how many events of each: the first world is keyed, the third one is rolled back, the fourth one is keyed
#: and has shadow rows and partitions, the last one has a slot
SEEDS = {7: 150, 8: 150, 15: 150, 13: 150, 89: 150}
#: shrunk runs that once failed: what was wrong, the world's seed, and the events
FAILED = {
    "rows are committed between the first listing of a group that begins at the end, and its registration": (
        3061,
        [
            Event("consumer", 0.0, 3993113033, 0, "stale listing", 2),
            Event("plain-2", 11.0, 846736862, 0, "", 1),
            Event("book-1", 0.5, 3389484913, 0, "", 4),
        ],
    ),
    "an older run of a writer leaves alone the key that a newer one inserts": (
        300007,
        [
            Event("mixed-1", 0.1, 1058233642, 0, "", 2),
            Event("mixed-1b", 0.0, 3774546416, 0, "", 2),
            Event("mixed-1", 1.0, 195004588, 0, "torn upload", 2),
        ],
    ),
    "a tag that was taken off, and whose snapshot another program expired, is put back by a plan of the reaper's": (
        100030,
        [
            Event("plain-2", 11.0, 2603663498, 0, "error before", 15),
            Event("book-2", 11.0, 777668071, 0, "", 10),
            Event("book-1", 11.0, 1591041515, 0, "", 1),
            Event("book-2", 1.0, 556997434, 0, "crash, and it arrives late", 10),
            Event("plain-1b", 11.0, 3549816986, 0, "outage", 0),
            Event("plain-1b", 11.0, 2490213346, 4, "", 0),
            Event("consumer", 1.0, 1495529679, 0, "", 3),
            Event("chain-1", 1.0, 477248801, 0, "", 4),
            Event("book-2", 3.0, 3675171809, 0, "error before", 0),
            Event("disk", 11.0, 1096641862, 0, "", 0),
            Event("plain-1b", 3.0, 1976135970, 0, "", 7),
            Event("book-1", 1.0, 2901862712, 0, "", 0),
            Event("chain-1", 1.0, 1638133557, 0, "", 2),
            Event("compactor-2", 1.0, 2927533453, 0, "crash before", 4),
            Event("consumer", 11.0, 659720516, 0, "", 4),
            Event("fold-book-1", 1.0, 1625060641, 0, "", 2),
            Event("book-1", 1.0, 2068743611, 0, "late", 1),
            Event("book-2", 1.0, 546931872, 0, "", 2),
            Event("book-2", 1.0, 1993563915, 0, "", 2),
            Event("fold-book-2", 3.0, 4051561282, 0, "", 15),
            Event("rewriter", 0.1, 2717952474, 0, "", 0),
            Event("book-2", 1.0, 691312689, 0, "", 0),
            Event("book-1", 1.0, 4269757827, 0, "", 0),
            Event("book-2", 1.0, 3874030825, 0, "", 0),
            Event("book-1", 1.0, 2228134041, 0, "", 0),
            Event("book-1", 1.0, 977529250, 0, "", 0),
            Event("book-1", 1.0, 3398887475, 0, "", 0),
            Event("book-2", 1.0, 1196822988, 0, "", 0),
            Event("book-1", 1.0, 514940352, 0, "", 0),
            Event("book-1", 1.0, 2440731203, 0, "", 0),
            Event("book-2", 1.0, 3295023778, 0, "", 0),
            Event("book-2", 11.0, 1076563026, 0, "", 3),
            Event("book-1", 1.0, 991791678, 0, "", 2),
            Event("reaper", 3.0, 1531138100, -1, "", 0),
            Event("refs", 0.1, 3528443279, 0, "", 0),
            Event("refs", 0.1, 3396694258, 0, "", 0),
            Event("expirer", 0.1, 1909641820, 0, "", 0),
            Event("book-1", 4000.0, 3513945316, 0, "", 15),
            Event("refs", 11.0, 687207460, 0, "", 0),
            Event("expirer", 1.0, 1872686062, 0, "", 0),
        ],
    ),
    "a run goes on after its mark was pruned, and after its rejected txlog was swept": (
        5,
        [
            Event("chain-1b", 0.1, 2341375822),
            Event("book-1", 0.1),
            Event("chain-1", 0.0, 3209861518),
            Event("chain-1b", 3.0, 4017277011),
            Event("book-1", 0.1),
            Event("book-1", 8000.0),
            Event("book-1", 1.0),
            Event("plain-2", 0.5, 142012952),
            Event("book-1", 1.0),
            Event("chain-1b", 11.0, 726265015),
        ],
    ),
    "a bookkeeper stands still for hours just before the commit of a fold, and nothing else commits": (
        145,
        [
            Event("plain-1", 11.0, 2067092032),
            Event("book-2", 1.0),
            Event("plain-1", 1.0, 2459499660),
            Event("book-1", 0.5),
            Event("plain-1", 1.0, 645507745),
            Event("reaper", 4000.0),
            Event("book-1", 1.0),
            Event("fold-book-1"),
            Event("mixed-1", 1.0, 1981042689),
            Event("mixed-1", 1.0, 993665356),
            Event("book-1", 1.0),
            Event("plain-1b", 0.5, 1869474241),
            Event("book-1", 0.1),
            Event("fold-book-1", 1.0),
            Event("book-1", 1.0, 0, 7),
            Event("reaper", 8000.0),
            Event("reaper", 4000.0),
        ],
    ),
    "a consumer begins on an empty table, whose first commit is one of upserts": (
        10,
        [Event("consumer", 11.0), Event("chain-1", 1.0, 2233854120)],
    ),
    "a txlog of a run that was stopped for hours arrives after its mark was pruned": (
        1007,
        [
            Event("plain-1", 1.0, 4048826724, 0, "error before", 3),
            Event("plain-1", 1.0, 3765661656, 3),
            Event("book-1", 0.5),
            Event("book-2", 8000.0),
            Event("plain-2", 0.5, 3939040136),
            Event("book-2", 11.0),
        ],
    ),
    "main is rolled back behind a consumer's place, whose snapshot then expires": (
        2019,
        [
            Event("book-1", 3.0, 0, 0, "stale listing"),
            Event("plain-1", 0.5),
            Event("plain-2", 1.0),
            Event("book-1", 1.0),
            Event("book-2", 3.0),
            Event("book-1", 11.0),
            Event("book-2", 1.0),
            Event("consumer", 1.0),
            Event("book-2", 3.0),
            Event("book-1", 0.5),
            Event("book-1", 11.0),
            Event("book-1", 1.0),
            Event("plain-2", 1.0),
            Event("book-1", 11.0),
            Event("plain-2", 1.0),
            Event("book-1", 1.0),
            Event("refs", 3.0),
            Event("book-2", 1.0),
            Event("book-2", 11.0),
            Event("book-2", 0.5),
            Event("book-2", 0.5),
            Event("book-2", 0.5),
            Event("chain-1", 1.0),
            Event("expirer", 0.1, 3096800139),
        ],
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_of_this_seed_keeps_every_promise(seed: int) -> None:
    played = play(seed, list(events_of(seed, SEEDS[seed])))
    assert played.wrong == "", "\n".join([*played.story, played.where])
    assert played.counts["ticks that committed"] > 10


@pytest.mark.parametrize("what", FAILED)
def test_what_once_failed_holds(what: str) -> None:
    seed, steps = FAILED[what]
    played = play(seed, steps)
    assert played.wrong == "", "\n".join([*played.story, played.where])


def test_a_seed_takes_the_same_way_every_time() -> None:
    steps = list(events_of(12, 60))
    assert play(12, steps).digest == play(12, steps).digest


def test_a_failure_is_told_in_a_few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(world: World, dice: Random) -> None:
        """What the quiet end of a world never does, else the shortest story would be an empty one."""
        if world.counts["ticks that committed"]:
            raise Wrong("a disk fails once there are rows")

    monkeypatch.setattr(World, "_disk", fails)
    steps = [*events_of(1, 60), Event("disk", 1.0)]
    played = play(1, steps)
    assert played.kind
    short = shrink(1, steps[: played.taken], played.kind)
    assert [event.who.partition("-")[0] for event in short] in (["plain", "book", "disk"], ["chain", "book", "disk"])
    assert play(1, short).kind == played.kind


def test_every_error_is_looked_for_or_left_out_for_a_reason() -> None:
    every = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    kinds = {"BookkeeperError", "Retry", "Reject", "RewriteRejected", "Hold", "Halt", "Refused"}
    left_out = [name for names in coverage.LEFT_OUT.values() for name in names]
    looked_for = {*coverage.ERRORS, *coverage.REJECTED} & every
    assert sorted([*left_out, *looked_for]) == sorted(every - kinds)


def test_a_run_says_what_it_never_met() -> None:
    counts = play(1, []).counts
    assert "fault crash before" in wanted()
    assert "never met: fault error before, " in report(counts)
