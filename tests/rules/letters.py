"""
Dead letters: each message of a topic in one of two tables, once, also where letters are replayed.
"""

from dataclasses import replace
from typing import Any

from bookkeeper.errors import NotPossible
from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
LETTERS, REPLAY = "tests/kafka/test_letters.py::", "tests/kafka/test_replay.py::"
CRASH = f"{LETTERS}test_a_crash_at_each_step_and_another_verdict_leave_a_message_in_one_table"


@rule(
    "Which messages are put aside is stored before their letters are published.",
    Fails(f"{CRASH}[another verdict-behind the letters]"),
)
@breaks("writers.kafka.verdicts.Verdicts._put")
def verdicts_are_not_stored(rightly: Any, verdicts: Any, found: Any) -> None:
    """A run claims the object, and keeps in memory what it puts aside."""
    if any(found.values()):
        verdicts._own = {channel: set(own) for channel, own in found.items()}
    else:
        rightly(verdicts, found)


@rule(
    "What an earlier run has put aside is a letter for the next one too, whatever that says of it.",
    Fails(f"{CRASH}[another verdict-behind the letters]"),
)
@breaks("writers.kafka.letters.Letters.judged")
def each_run_judges_anew(rightly: Any, letters: Any, channel: str, offset: int) -> bool:
    """A run goes by what it says of a message itself."""
    return False


@rule(
    "Letters are committed before the rows around them are published.",
    Fails(f"{LETTERS}test_rows_around_letters_that_are_rejected_are_not_published"),
)
@breaks("writers.kafka.letters.Letters.send")
def letters_are_published_and_not_waited_for(rightly: Any, letters: Any, passed: Any) -> bool:
    """The rows follow at once."""
    rightly(letters, passed)
    return True


@rule(
    "A run puts nothing aside before a txlog of its own is committed: an earlier run may still publish it as a row.",
    Fails(f"{LETTERS}test_two_instances_that_judge_otherwise_put_each_message_into_one_table", timed=True),
)
@breaks("writers.kafka.run.Run._fences")
def runs_put_aside_at_once(rightly: Any, run: Any) -> bool:
    """It does not wait for a txlog of its own."""
    return True


@rule(
    "Events wait with the batch that waits: they say that partitions were read behind its messages.",
    Fails(f"{LETTERS}test_a_topic_of_bad_messages_alone_is_passed"),
)
@breaks("writers.kafka.run.Run._take")
def events_do_not_wait(rightly: Any, run: Any, batch: Any) -> None:
    """The end of a partition counts before its last messages are taken."""
    rightly(run, batch)
    if run._kept is not None:
        for event in batch.events:
            run._note(event)


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
