"""
Dead letters: a message that is no row is in the table of letters, whatever crashes and whoever reads it again; and what
the copy of topics does where brokers give them no ids, and where it runs to the end and ends.
"""

from typing import Any

from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
LETTERS = "tests/kafka/test_letters.py::"
CRASH = f"{LETTERS}test_a_crash_at_each_step_and_another_verdict_leave_a_message_in_one_table"


@rule(
    "What a run has put aside counts for the next one, whatever that would say of the message.",
    Fails(f"{CRASH}[another verdict-behind the letters]"),
)
@breaks("writers.kafka.dead_letters.Letters.judged")
def verdicts_count_for_no_other_run(rightly: Any, letters: Any, channel: str, offset: int) -> bool:
    """Each run judges anew."""
    return False


@rule(
    "A rehash claims the verdicts of all slots: one that is no more has no later run that fences its runs.",
    Fails(f"{LETTERS}test_an_instance_that_was_forgotten_at_a_rehash_puts_nothing_aside"),
)
@breaks("bookkeeper.commands.rehash.claim")
def rehash_claims_no_verdicts(rightly: Any, store: Any, source: str, run: str) -> None:
    """Runs from before go on putting messages aside."""


@rule(
    "Letters of another table stop a source: a replay of them would double what it copies as rows.",
    Fails(f"{LETTERS}test_letters_of_a_table_that_was_dropped_are_not_mixed_with_those_of_the_next_one"),
)
@breaks("writers.kafka.source.check_same")
def letters_of_any_table(rightly: Any, letters: Any, rows: Any, source: str) -> None:
    """Whose letters there are is not asked."""


@rule(
    "A verdict is put before the letters are published: a letter without one may become a row too.",
    Fails(f"{CRASH}[another verdict-behind the letters]"),
)
@breaks("writers.kafka.verdicts.Verdicts.add")
def letters_have_no_verdict(rightly: Any, verdicts: Any, new: Any, passed: Any) -> None:
    """Letters are published, and the storage knows of no verdict."""


@rule(
    "Letters are committed before the rows of the same stretch are published: with the rows the offset passes them.",
    Fails(f"{CRASH}[the same verdict-before the letters]"),
)
@breaks("writers.kafka.run.Run._send")
def rows_come_before_letters(rightly: Any, run: Any, ends: bool = False) -> bool:
    """The rows with their offsets are published first."""
    letters, run._letters = run._letters, None
    rightly(run, ends)
    run._letters = letters
    return letters is None or not letters.waiting or bool(letters.send(run._passed()))


@rule(
    "A run puts nothing aside before a txlog of its own is committed: an earlier run may still publish it as a row.",
    Fails(f"{LETTERS}test_a_run_that_stood_still_before_its_rows_does_not_bring_one_that_has_a_letter_now"),
)
@breaks("writers.kafka.run.Run._fences")
def letters_wait_for_no_txlog(rightly: Any, run: Any) -> bool:
    """Messages are put aside at once."""
    return True


@rule(
    "Events of a batch wait with its messages: the end of a partition is behind them.",
    Fails(f"{CRASH}[the same verdict-before the verdict]"),
)
@breaks("writers.kafka.run.Run._take")
def events_do_not_wait(rightly: Any, run: Any, batch: Any) -> None:
    """The end of a partition is noted while messages before it wait."""
    rightly(run, batch)
    for event in batch.events if run._kept is batch else ():
        run._note(event)


@rule(
    "A run claims the verdicts of its slot: from then on an earlier run puts nothing aside.",
    Fails(f"{LETTERS}test_of_two_runs_that_claim_one_goes_on"),
)
@breaks("writers.kafka.verdicts.Verdicts._put")
def verdicts_are_claimed_by_any_run(rightly: Any, verdicts: Any, found: Any) -> None:
    """It is put whatever is there."""
    verdicts._tag = None
    rightly(verdicts, found)


@rule(
    "Where brokers give topics no ids, the message that was read last is read again before each publish.",
    Fails("tests/kafka/test_named_topics.py::test_a_topic_that_is_made_anew_between_two_txlogs_is_seen"),
    Fails(
        "tests/kafka/test_named_topics.py::test_what_was_read_of_a_topic_that_is_made_anew_meanwhile_is_not_published"
    ),
)
@breaks("writers.kafka.run.not_there")
def names_are_enough_for_a_publish(rightly: Any, cluster: Any, seen: Any) -> dict[Any, str]:
    """A topic of the same name is the same topic."""
    return {}


@rule(
    "A process that reads to the end looks at what was rejected behind the one before: all at once it would be again.",
    Fails("tests/kafka/test_scripted.py::test_runs_until_the_end_find_what_was_rejected_behind_the_one_before"),
)
@breaks("writers.kafka.slot_loop.rejected_offsets")
def rejects_are_forgotten_by_the_next_process(rightly: Any, folder: Any, card: Any, writer: str) -> dict[str, Any]:
    """Nothing was rejected."""
    return {}


@rule(
    "In a log that was cut no verdict counts any more: other messages have the offsets now.",
    Fails(f"{LETTERS}test_what_takes_the_offset_of_a_letter_in_a_log_that_was_cut_is_judged_anew"),
)
@breaks("writers.kafka.verdicts.Verdicts.forget")
def verdicts_outlive_their_messages(rightly: Any, verdicts: Any, channel: str) -> None:
    """What was put aside stands for whatever has its offset."""
