"""
Dead letters that are replayed: each becomes one row, or stays.
"""

from dataclasses import replace
from typing import Any

from bookkeeper.errors import NotPossible
from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
REPLAY = "tests/kafka/test_replay.py::"


@rule(
    "Letters are deleted only once their rows are in the table.",
    Fails(f"{REPLAY}test_letters_whose_rows_are_rejected_stay"),
)
@breaks("writers.kafka.replay.Replay._settled")
def letters_are_deleted_with_rows_pending(rightly: Any, replay: Any, target: Any) -> bool:
    """What was published counts as committed."""
    return True


@rule(
    "Which letters of a chunk are rows is in the position of these rows: the next run does not judge them anew.",
    Fails(f"{REPLAY}test_a_crash_around_each_publish_leaves_each_letter_in_one_table[the same verdict-4-before it]"),
)
@breaks("writers.kafka.replay.chunk_of")
def all_letters_of_a_chunk_are_rows(rightly: Any, position: Any, writer: str) -> Any:
    """A position says which letters were taken, not which of them are rows."""
    found = rightly(position, writer)
    return found and replace(found, rows=frozenset(range(found.first, found.end)))


@rule(
    "An export that was made before a replay is refused: it may have letters that are rows already.",
    Fails(f"{REPLAY}test_an_export_behind_a_replay_is_taken_and_one_before_it_is_not"),
)
@breaks("writers.kafka.replay.Replay._begin")
def older_exports_are_taken(rightly: Any, replay: Any) -> int | None:
    """Each export is replayed from its beginning."""
    try:
        return int(rightly(replay))
    except NotPossible:
        return 0


@rule(
    "A letter is replayed only once the table has passed it: until then the source may write it again.",
    Fails(f"{REPLAY}test_letters_that_the_copy_may_write_again_are_refused"),
)
@breaks("writers.kafka.replay.Replay._check_letters")
def letters_are_replayed_at_once(rightly: Any, replay: Any, first: int) -> None:
    """Offsets of the source count for nothing."""
