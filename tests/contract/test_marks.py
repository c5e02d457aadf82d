"""Marks: which txlogs are in, checked against a set of names."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.contract.marks import FUTURE_MS, MOST_HOLES, Mark, Marks, WriterMarks
from bookkeeper.contract.marks_json import dumps, from_json, loads, to_json
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.errors import TooManyHoles

HOUR = 3_600_000
T0 = 1_700_000_000_000
RUNS = [(writer, new_incarnation(T0 + start, bytes(10))) for writer in ("a", "b-1") for start in (0, 1)]
HIGHEST = 12
UNIVERSE = [TxlogName(writer, run, number) for writer, run in RUNS for number in range(1, HIGHEST + 1)]

runs = st.sampled_from(RUNS)
sequences = st.integers(1, HIGHEST)
names = st.builds(lambda run, sequence: TxlogName(*run, sequence), runs, sequences)
positions = st.binary(max_size=4)
spans = st.integers(0, 3 * HOUR)
advance = st.tuples(st.just("advance"), st.lists(names, max_size=6), st.dictionaries(st.just("a"), positions), spans)
prune = st.tuples(st.just("prune"), st.lists(names, max_size=2), spans)
forget = st.tuples(st.just("forget"), st.sampled_from(["a", "b-1", "unknown"]))
reopen = st.tuples(st.just("open"), names)
histories = st.lists(st.one_of(advance, prune, forget, reopen), max_size=12)


@dataclass
class Model:
    """The same, as a set of names that are in; clumsy, and plainly right."""

    now: int = T0
    known: dict[tuple[str, str], int] = field(default_factory=dict)
    into: set[TxlogName] = field(default_factory=set)
    position: dict[str, bytes] = field(default_factory=dict)

    def apply(self, marks: Marks, event: tuple[Any, ...]) -> Marks:
        return getattr(self, event[0])(marks, *event[1:])

    def advance(self, marks: Marks, got_in: list[TxlogName], reached: dict[str, bytes], span: int) -> Marks:
        self.now += span
        written = {writer: data for writer, data in reached.items() if any(n.writer == writer for n in got_in)}
        for name in got_in:
            self.known[name.writer, name.incarnation] = self.now
            self.into.add(name)
        self.position |= written
        return marks.advanced(got_in, written, self.now)

    def prune(self, marks: Marks, named: list[TxlogName], idle: int) -> Marks:
        kept = {(name.writer, name.incarnation) for name in named}
        gone = {run for run, seen in self.known.items() if seen < self.now - idle and run not in kept}
        self.known = {run: seen for run, seen in self.known.items() if run not in gone}
        self.into = {name for name in self.into if (name.writer, name.incarnation) not in gone}
        return marks.pruned(self.now - idle, named)

    def forget(self, marks: Marks, writer: str) -> Marks:
        self.position.pop(writer, None)
        return marks.forgotten([writer], T0)

    def open(self, marks: Marks, name: TxlogName) -> Marks:
        run = (name.writer, name.incarnation)
        if run not in self.known:
            self.into |= {name.at(number) for number in range(1, name.sequence)}
        self.known[run] = self.now
        self.into.discard(name)
        return marks.opened(name, self.now)


@given(histories)
def test_marks_know_what_is_in_like_a_set_of_names_would(events: list[tuple[Any, ...]]) -> None:
    marks, model = Marks("folder"), Model()
    for event in events:
        marks = model.apply(marks, event)
        assert {name for name in UNIVERSE if marks.is_in(name)} == model.into
        assert {run for run in RUNS if marks.mark(TxlogName(*run, 1)) is not None} == set(model.known)
        assert {writer: known.position for writer, known in marks.writers.items() if known.position is not None} == (
            model.position
        )
        assert loads(dumps(marks)) == marks


publish = st.tuples(st.just("publish"), runs, st.integers(1, 3), st.integers(-5 * HOUR, FUTURE_MS), spans)


@given(st.lists(st.one_of(publish, prune, forget), max_size=25))
def test_what_was_ever_in_is_in_or_known_to_be_pruned(events: list[tuple[Any, ...]]) -> None:
    marks, model = Marks("folder"), Model()
    next_of = dict.fromkeys(RUNS, 0)
    ever: dict[TxlogName, int] = {}
    for event in events:
        if event[0] != "publish":
            marks = model.apply(marks, event)
        else:
            _, run, step, skew, span = event
            next_of[run] += step
            model.now += span
            name, created_ms = TxlogName(*run, next_of[run]), model.now + skew
            marks, landed = committed(marks, name, created_ms, model.now)
            ever |= {name: created_ms} if landed else {}
        assert all(marks.is_in(name) or marks.is_pruned(name, created) for name, created in ever.items())


def committed(marks: Marks, name: TxlogName, created_ms: int, now_ms: int) -> tuple[Marks, bool]:
    """
    What a tick makes of one txlog of a run that publishes in order, and whether it got in.
    """
    if marks.is_pruned(name, created_ms):
        return marks, False
    if marks.may_go_on(name, created_ms):
        marks = marks.gone_on(name, [])
    return marks.advanced([name], {}, now_ms), True


@given(histories)
def test_holes_are_below_the_mark_and_never_many(events: list[tuple[Any, ...]]) -> None:
    marks, model = Marks("folder"), Model()
    for event in events:
        marks = model.apply(marks, event)
        for writer in marks.writers.values():
            for mark in writer.incarnations.values():
                assert list(mark.holes) == sorted(set(mark.holes))
                assert all(0 < hole <= mark.last for hole in mark.holes)
                assert len(mark.holes) <= MOST_HOLES


@given(st.lists(names, unique=True))
def test_the_order_in_which_txlogs_get_in_does_not_matter(got_in: list[TxlogName]) -> None:
    assert Marks("f").advanced(got_in, {}, T0) == Marks("f").advanced(sorted(got_in), {}, T0)


def test_nothing_is_in_before_the_first_commit(first: TxlogName) -> None:
    assert not Marks("f").is_in(first)
    assert not Marks("f").is_pruned(first, 0)


def test_a_sequence_passed_over_is_a_hole_until_it_gets_in(first: TxlogName) -> None:
    marks = Marks("f").advanced([first, first.at(4)], {}, T0)
    assert marks.mark(first) == Mark(4, (2, 3), T0)
    assert marks.advanced([first.at(2)], {}, T0 + 1).mark(first) == Mark(4, (3,), T0 + 1)


def test_a_position_stays_until_a_commit_brings_another(first: TxlogName) -> None:
    marks = Marks("f").advanced([first], {"w1": b"10"}, T0).advanced([first.at(2)], {}, T0)
    assert marks.writer("w1").position == b"10"
    assert marks.advanced([first.at(3)], {"w1": b"20"}, T0).writer("w1").position == b"20"


def test_as_many_holes_as_allowed_get_in_and_one_more_does_not(first: TxlogName) -> None:
    marks = Marks("f").advanced([first.at(MOST_HOLES + 1)], {}, T0)
    assert len((marks.mark(first) or Mark()).holes) == MOST_HOLES
    with pytest.raises(TooManyHoles, match="would have 65 holes"):
        marks.advanced([first.at(MOST_HOLES + 3)], {}, T0)
    with pytest.raises(TooManyHoles, match="65 sequences after"):
        Marks("f").advanced([first.at(MOST_HOLES + 2)], {}, T0)
    marks = marks.advanced([first.at(7)], {}, T0)
    assert marks.advanced([first.at(MOST_HOLES + 3)], {}, T0).is_in(first.at(MOST_HOLES + 3))


@pytest.mark.parametrize("sequence", [MOST_HOLES + 4, 9_999_999_999])
def test_a_sequence_far_ahead_is_refused_without_counting_up_to_it(first: TxlogName, sequence: int) -> None:
    marks = Marks("f").advanced([first], {}, T0)
    with pytest.raises(TooManyHoles):
        marks.advanced([first.at(sequence)], {}, T0)
    with pytest.raises(TooManyHoles):
        marks.opened(first.at(sequence), T0)


def test_a_clock_that_jumps_back_makes_no_run_look_idle(first: TxlogName) -> None:
    marks = Marks("f").advanced([first], {}, T0).advanced([first.at(2)], {}, T0 - HOUR)
    assert marks.mark(first) == Mark(2, (), T0)
    assert marks.opened(first.at(2), T0 - HOUR).mark(first) == Mark(2, (2,), T0)


def test_pruning_drops_what_is_idle_and_keeps_every_position(first: TxlogName) -> None:
    marks = Marks("f").advanced([first, TxlogName("w2", first.incarnation, 1)], {"w1": b"7"}, T0)
    pruned = marks.pruned(T0 + 1, [])
    assert pruned.writers == {"w1": WriterMarks(b"7", {}, T0)}
    assert pruned.pruned_before_ms == T0 + FUTURE_MS + 1


def test_pruning_keeps_a_run_that_a_name_in_the_folder_needs(first: TxlogName) -> None:
    marks = Marks("f").advanced([first], {}, T0)
    assert marks.pruned(T0 + HOUR, [first.at(9)]) == marks


def test_pruning_drops_nothing_that_was_seen_since(first: TxlogName) -> None:
    marks = Marks("f").advanced([first], {}, T0)
    assert marks.pruned(T0, []) == marks


def test_what_was_pruned_before_stays_pruned(first: TxlogName) -> None:
    marks = replace(Marks("f").advanced([first], {}, T0), pruned_before_ms=T0 + 9 * HOUR)
    assert marks.pruned(T0 + 1, []).pruned_before_ms == T0 + 9 * HOUR


def test_forgetting_a_writer_rejects_no_next_run_of_another(first: TxlogName) -> None:
    marks = Marks("f").advanced([first], {"w1": b"7"}, T0).forgotten(["w1"], T0)
    assert marks.writer("w1").position is None
    assert marks.is_in(first)
    for writer in ("w1", "w2"):
        assert not marks.is_pruned(TxlogName(writer, new_incarnation(T0 + 1, bytes(10)), 1), T0 + 1)


def test_a_forgotten_writer_is_gone_once_its_runs_are_pruned(first: TxlogName) -> None:
    marks = Marks("f").advanced([first], {"w1": b"7"}, T0).forgotten(["w1"], T0).pruned(T0 + 1, [])
    assert marks.writers == {}
    assert marks.is_pruned(first, T0 + FUTURE_MS)
    assert Marks("f", writers={"w1": WriterMarks(b"7")}).forgotten(["w1"], T0).writers == {}


def test_a_hole_that_was_opened_lets_its_txlog_in_once(first: TxlogName) -> None:
    marks = Marks("f").advanced([first, first.at(2)], {}, T0).pruned(T0 + 1, [])
    opened = marks.opened(first.at(2), T0 + HOUR)
    assert not opened.is_in(first.at(2)) and not opened.is_pruned(first.at(2), T0)
    again = opened.advanced([first.at(2)], {}, T0 + HOUR)
    assert again.is_in(first.at(2)) and again.mark(first) == Mark(2, (), T0 + HOUR, remade_ms=marks.pruned_before_ms)


def test_a_run_goes_on_where_its_pruned_marks_must_have_been(first: TxlogName) -> None:
    marks = Marks("f").advanced([first.at(number) for number in range(1, 501)], {}, T0).pruned(T0 + 1, [])
    later, created = first.at(503), marks.pruned_before_ms
    assert marks.may_go_on(later, created) and not marks.may_go_on(later, created - 1)
    gone_on = marks.gone_on(later, [501])
    assert gone_on.is_in(first.at(500)) and not gone_on.is_in(first.at(501)) and not gone_on.is_in(later)
    assert not gone_on.may_go_on(later, created)


def test_a_run_that_started_after_the_pruning_does_not_go_on(first: TxlogName) -> None:
    marks = replace(Marks("f"), pruned_before_ms=T0)
    fresh = TxlogName("w1", new_incarnation(T0, bytes(10)), 7)
    assert not marks.may_go_on(fresh, T0 + 1)
    assert not marks.may_go_on(first, T0 + 1), "the first of a run continues nothing"


def test_pruning_never_refuses_the_first_txlog_of_a_run_that_waits(first: TxlogName) -> None:
    marks = Marks("f").advanced([first], {}, T0)
    waits = TxlogName("w2", new_incarnation(T0 + FUTURE_MS, bytes(10)), 1)
    assert marks.pruned(T0 + 1, [], waiting=[waits]) == marks
    later = TxlogName("w2", new_incarnation(T0 + FUTURE_MS + 1, bytes(10)), 1)
    pruned = marks.pruned(T0 + 1, [], waiting=[later])
    assert pruned.writers == {} and not pruned.is_pruned(later, T0 + FUTURE_MS + 1)


def test_a_forced_replay_keeps_open_what_else_of_the_run_lies_in_the_folder(first: TxlogName) -> None:
    opened = Marks("f", pruned_before_ms=T0).opened(first.at(500), T0, named=[first.at(499), TxlogName("w2", "i", 7)])
    assert not opened.is_in(first.at(499)) and not opened.is_in(first.at(500))
    assert opened.is_in(first.at(498)) and opened.mark(TxlogName("w2", "i", 7)) is None


def test_after_a_forced_replay_only_what_was_forced_or_is_newer_gets_in(first: TxlogName) -> None:
    opened = Marks("f", pruned_before_ms=T0).opened(first.at(5), T0, named=[first.at(3)])
    assert not opened.is_pruned(first.at(5), T0 - 1)
    for other in (first.at(3), first.at(6)):
        assert opened.is_pruned(other, T0 - 1) and not opened.is_pruned(other, T0)
    both = opened.opened(first.at(3), T0)
    assert not both.is_pruned(first.at(3), T0 - 1) and not both.is_pruned(first.at(5), T0 - 1)
    assert both.advanced([first.at(3), first.at(5)], {}, T0).mark(first) == Mark(5, (), T0, remade_ms=T0)
    assert loads(dumps(both)) == both
    assert both.dated_back(T0 - 9 * HOUR).mark(first).remade_ms == T0 - 8 * HOUR  # type: ignore[union-attr]
    assert both.discarded(first.at(4), (), T0).mark(first).forced == (5,)  # type: ignore[union-attr]


def test_when_a_writer_was_last_seen_survives_its_marks_and_earlier_versions(first: TxlogName) -> None:
    """What 0.1.0 writes has no `seen-ms` beside a position: then the last pruning says when it was at the latest."""
    other = TxlogName("w2", first.incarnation, 1)
    marks = Marks("f").advanced([first], {"w1": b"7"}, T0).pruned(T0 + 1, [])
    later = marks.advanced([other], {"w2": b"8"}, T0 + HOUR).pruned(T0 + 2 * HOUR, [])
    assert (later.seen_ms("w1"), later.seen_ms("w2")) == (T0, T0 + HOUR)
    data = to_json(later)
    assert from_json(data) == later
    for known in data["writers"].values():
        del known["seen-ms"]
    earlier = from_json(data)
    assert earlier.seen_ms("w1") == earlier.seen_ms("w2") == T0 + HOUR
    assert earlier.pruned(T0 + 3 * HOUR, []).writer("w1") == WriterMarks(b"7", {}, T0 + HOUR)


def test_only_the_marks_of_some_writers_are_pruned(first: TxlogName) -> None:
    other = TxlogName("w2", first.incarnation, 1)
    marks = Marks("f").advanced([first, other], {}, T0).pruned(T0 + 1, [], of={"w2"})
    assert list(marks.writers) == ["w1"] and marks.pruned_before_ms > T0
