"""
Rows over HTTP: a request of a named producer counts once, and 200 says that its rows are in the table.
"""

from typing import Any

from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
NAMED = "tests/http/test_named.py::"


@rule(
    "200 is the answer once the slot's marks have the sequence: what is published may still be rejected.",
    Fails(f"{NAMED}test_200_says_that_the_rows_are_in_the_table"),
)
@breaks("writers.http.slot.Slot._settle")
def published_requests_are_answered_200(rightly: Any, slot: Any) -> None:
    """The offsets of the chain's end count as committed."""
    chain = slot._chain
    chain.committed = lambda: chain.published
    rightly(slot)


@rule(
    "Only the sequence behind the last one is taken: behind a gap a request that comes late would be lost.",
    Fails(f"{NAMED}test_a_gap_is_409_with_the_sequence_to_go_on_from"),
)
@breaks("writers.http.slot.Slot._in_order")
def any_later_sequence_is_taken(rightly: Any, slot: Any, producer: str, offset: Any, items: Any, now: Any) -> Any:
    """A gap is none."""
    first = min(post.sequence for _, post in items)
    return rightly(slot, producer, str(max(int(offset or 0), first - 1)), items, now)


@rule(
    "A sequence is known by the chain of txlogs alone: what was refused, or given up, was not taken.",
    Fails(f"{NAMED}test_what_is_behind_a_bad_request_waits_for_it"),
)
@breaks("writers.http.slot.Slot._in_order")
def sequences_are_known_by_memory(rightly: Any, slot: Any, producer: str, offset: Any, items: Any, now: Any) -> Any:
    """What was once next in order counts as reached, whatever became of it."""
    known = slot.__dict__.setdefault("_known", dict[str, str]())
    found = rightly(slot, producer, known.get(producer, offset), items, now)
    if found:
        known[producer] = str(found[-1].sequence)
    return found


@rule(
    "While requests wait for their commit it is looked whether another run has gone ahead: theirs never comes then.",
    Fails(f"{NAMED}test_a_slot_that_another_run_has_gone_ahead_of_begins_anew"),
)
@breaks("writers.http.slot.Slot._settle")
def slots_never_look(rightly: Any, slot: Any) -> None:
    """It is not asked what became of a txlog."""
    slot._chain.look = lambda committed: None
    rightly(slot)
