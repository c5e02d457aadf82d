"""
Slots: offsets of many channels that come with the rows, and are never compared, lost or taken from elsewhere.
"""

from dataclasses import replace
from typing import Any

from pyiceberg.table.snapshots import Operation

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.offsets import FORGOTTEN, Offsets, merged
from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import ChannelTaken, EntryInvalid, TooManyChannels
from bookkeeper.ledger.build_commit import NewSnapshot
from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails, Killed, Modelled, Simulated

rule = Chapter()
TICK = "tests/tick/test_offsets.py::"
WRITER = "tests/writers/test_offsets.py::"
SLOTS = "kill -9 of slots, bookkeeper, reaper"
SILENCE = "tests/http/test_silence.py::"
REHASH = "tests/commands/test_rehash.py::"
CONTRACT = "tests/contract/test_offsets.py::"
VERSION_2 = (
    "tests/contract/test_marks_json.py::test_marks_with_offsets_are_version_2_and_without_them_version_1_byte_for_byte"
)


@rule(
    "The position of a slot's txlog is compared, whatever its offsets are.",
    Simulated(6000),
    Killed(20, SLOTS),
    Fails(f"{TICK}test_offsets_are_not_compared_and_the_position_is"),
    Fails(f"{TICK}test_a_fork_in_one_batch_leaves_the_offsets_of_one_run"),
)
@breaks("bookkeeper.tick.plan_batch._Planner._check_position")
def positions_of_slots_are_not_compared(rightly: Any, planner: Any, txlog: Txlog) -> None:
    """A txlog with offsets gets in wherever it continues from."""
    if not txlog.offsets:
        rightly(planner, txlog)


@rule(
    "The position of a slot's txlog recurs in no run: with a counter a txlog fits behind another run's.",
    Simulated(6000),
    Modelled("PositionsNeverRecur"),
    Killed(20, SLOTS),
    Fails(f"{WRITER}test_of_two_runs_that_fork_all_of_one_is_rejected_and_its_offsets_with_it"),
)
@breaks("writers.publish.channel_offsets.ChannelOffsets.position")
def positions_of_slots_are_counted(rightly: Any, slot: Any, name: Any, given: Any, card: Any) -> Any:
    """The position is the number of the txlog: two runs count the same."""
    return str(name.sequence).encode() if slot.waiting else given


@rule(
    "Offsets are merged: a channel that a txlog does not name stays where it was.",
    Simulated(3000),
    Modelled("OffsetsMerged"),
    Killed(20, SLOTS),
    Fails(f"{TICK}test_offsets_come_with_the_rows_and_channels_that_are_not_named_stay"),
    Fails(f"{CONTRACT}test_a_channel_that_a_txlog_does_not_name_stays_where_it_was"),
)
@breaks("bookkeeper.contract.marks.merged")
def offsets_are_replaced(rightly: Any, before: Offsets, reached: Offsets) -> Offsets:
    """A txlog says all offsets of its slot."""
    return reached or before


@rule(
    "A channel that its slot forgets is in no marks from that commit on.",
    Fails(f"{TICK}test_a_channel_that_its_slot_forgets_goes_with_the_commit_and_may_come_again"),
    Fails(f"{SILENCE}test_a_silent_producer_is_forgotten_and_begins_anew"),
)
@breaks("bookkeeper.contract.marks.merged")
def forgotten_channels_stay(rightly: Any, before: Offsets, reached: Offsets) -> Offsets:
    """What is forgotten is not named."""
    return rightly(before, {channel: offset for channel, offset in reached.items() if offset})


@rule(
    "A slot forgets no channel of another one, nor makes room by it.",
    Fails(f"{TICK}test_a_slot_forgets_no_channel_of_another_one"),
)
@breaks("bookkeeper.contract.marks.Marks.with_channels")
def room_of_others_is_taken(rightly: Any, marks: Marks, writer: str, reached: Any, new: Any) -> Any:
    """Each channel that is forgotten makes room."""
    gone = {channel: FORGOTTEN for channel, offset in reached.items() if offset == FORGOTTEN}
    left = {slot: replace(known, offsets=merged(known.offsets, gone)) for slot, known in marks.writers.items()}
    return rightly(replace(marks, writers=left), writer, reached, new)


@rule(
    "Nothing of a producer is taken while its forgetting is not in the table: its former sequence would answer for it.",
    Fails(f"{SILENCE}test_nothing_of_a_producer_is_taken_while_it_is_being_forgotten"),
)
@breaks("writers.http.chain.Chain.seen")
def being_forgotten_is_not_looked_at(rightly: Any, chain: Any) -> Offsets:
    """A producer that is not in the chain begins anew."""
    return {}


@rule(
    "A producer is silent by two clocks.",
    Fails(f"{SILENCE}test_one_clock_that_is_ahead_forgets_none"),
)
@breaks("writers.http.silence.Silence._look")
def the_own_clock_says_who_is_silent(rightly: Any, silence: Any) -> None:
    """This machine's clock alone."""
    rightly(silence)
    silence._committed_at = silence._clock()


@rule(
    "A rejected txlog moves no offset.",
    Modelled("RejectedMovesNothing"),
    Fails(f"{TICK}test_a_fork_in_one_batch_leaves_the_offsets_of_one_run"),
)
@breaks("bookkeeper.tick.plan_batch._Planner._try")
def rejected_offsets_are_taken(rightly: Any, planner: Any, txlog: Txlog, key: Any, mark: Any) -> None:
    """Offsets are merged before it is known whether their txlog gets in."""
    rightly(planner, txlog, key, mark)
    if txlog.name in planner.batch.rejected:
        known = planner.batch.offsets.setdefault(txlog.name.writer, {})
        planner.batch.offsets[txlog.name.writer] = {**known, **txlog.offsets}


@rule(
    "A channel with bad rows stops alone: after a reject its channels are published one by one.",
    Fails("tests/writers/test_suspects.py::test_of_many_channels_the_poisoned_one_alone_stops"),
)
@breaks("writers.publish.suspects.Suspects.fenced")
def bad_channels_stop_their_slot(rightly: Any, suspects: Any, error: Any) -> None:
    """The next run publishes all channels together, as the one that was fenced did."""


@rule(
    "A slot that is taken over goes on behind the offsets of its pending txlogs.",
    Modelled("OffsetsOfPending"),
    Fails("tests/writers/test_slots.py::test_a_slot_is_taken_over_at_the_end_of_its_chain_whatever_comes_between"),
    Killed(20, SLOTS),
    Fails(f"{WRITER}test_a_slot_that_is_opened_goes_on_behind_pending_and_committed_txlogs"),
)
@breaks("writers.writer.resume")
def pending_offsets_are_not_read(rightly: Any, folder: Any, card: Any, writer: str, now_ms: int) -> Any:
    """The position is that of the chain's end, the offsets are those in the marks."""
    copy = folder.marks()
    return rightly(folder, card, writer, now_ms)._replace(offsets={**copy.marks.writer(writer).offsets} if copy else {})


@rule(
    "A txlog of offsets alone is committed: were it dropped, the chain would end behind it.",
    Fails(f"{TICK}test_an_empty_one_in_the_middle_keeps_the_chain"),
)
@breaks("bookkeeper.tick.intake.check")
def empty_data_is_dropped(rightly: Any, txlog: Txlog, *given: Any) -> Any:
    """A txlog without files is rejected."""
    if not txlog.rows and txlog.deletes is None:
        raise EntryInvalid("it names no data file")
    return rightly(txlog, *given)


@rule(
    "Offsets alone are a `replace` snapshot, never an empty append.",
    Fails(f"{TICK}test_offsets_over_nothing_are_a_replace_and_never_an_empty_append"),
)
@breaks("bookkeeper.ledger.build_commit.NewSnapshot.label")
def empty_appends(rightly: Any, new: NewSnapshot, operation: Operation, about: Any) -> None:
    """A commit of offsets alone says that it appends."""
    rightly(new, Operation.APPEND if about.get("bookkeeper.reason") == "offsets" else operation, about)


@rule(
    "Marks with offsets have a version that older programs do not take: they would write them without.",
    Simulated(3000),
    Fails(f"{TICK}test_a_program_that_knows_version_1_alone_halts_and_says_upgrade"),
    Fails(VERSION_2),
)
@breaks("bookkeeper.contract.marks_json.to_json")
def old_programs_take_marks_with_offsets(rightly: Any, marks: Marks) -> Any:
    """Marks are version 1 whatever is in them."""
    return {**rightly(marks), "version": 1}


@rule(
    "A program that reads marks with offsets writes them with offsets.",
    Simulated(3000),
    Fails(f"{TICK}test_offsets_come_with_the_rows_and_channels_that_are_not_named_stay"),
    Fails("tests/histories/test_keyed.py::test_a_keyed_table_is_the_replay_of_its_writers_operations"),
)
@breaks("bookkeeper.ledger.view._marks")
def an_old_program_forgets_offsets(rightly: Any, table: Any) -> Marks:
    """Offsets in marks are passed over, as keys that are not known."""
    marks: Marks = rightly(table)
    return replace(marks, writers={name: replace(known, offsets={}) for name, known in marks.writers.items()})


@rule(
    "Offsets stay with the position when the marks of idle runs are pruned.",
    Fails(f"{TICK}test_offsets_stay_when_marks_are_pruned"),
    Fails(f"{CONTRACT}test_no_change_of_marks_but_forget_loses_offsets"),
)
@breaks("bookkeeper.contract.marks.Marks.pruned")
def pruning_forgets_offsets(rightly: Any, marks: Marks, *given: Any, **named: Any) -> Marks:
    """Of a writer without marks only the position is left."""
    left: Marks = rightly(marks, *given, **named)
    kept = {name: known.offsets if known.incarnations else {} for name, known in left.writers.items()}
    return replace(left, writers={name: replace(left.writer(name), offsets=offsets) for name, offsets in kept.items()})


@rule(
    "A table has room for so many channels: each commit writes all of them.",
    Fails(f"{TICK}test_channels_past_the_room_cost_their_txlog_alone"),
    Fails(f"{TICK}test_two_thousand_channels_are_the_room"),
)
@breaks("bookkeeper.contract.marks.Marks.with_channels")
def any_number_of_channels(rightly: Any, marks: Marks, writer: str, reached: Any, new: Offsets) -> Any:
    """No channel is counted."""
    try:
        return rightly(marks, writer, reached, new)
    except TooManyChannels:
        return {**new, **dict.fromkeys(reached, writer)}


@rule(
    "A channel has one slot in a table: of two, each would bring its rows.",
    Fails(f"{TICK}test_a_channel_has_one_slot_in_a_batch_and_in_the_table"),
    Fails(f"{REHASH}test_an_instance_with_the_former_number_begins_no_channel_anew"),
)
@breaks("bookkeeper.contract.marks.Marks.with_channels")
def a_channel_has_many_slots(rightly: Any, marks: Marks, writer: str, reached: Any, new: Offsets) -> Any:
    """Each slot has the channels that it names."""
    try:
        return rightly(marks, writer, reached, new)
    except ChannelTaken:
        return {**new, **dict.fromkeys(reached, writer)}


@rule(
    "Where the number of slots changes, each slot gets a new position: runs from before are fenced.",
    Fails(f"{REHASH}test_runs_from_before_are_fenced_wherever_they_stand"),
)
@breaks("bookkeeper.commands.rehash._moved")
def rehash_keeps_positions(rightly: Any, marks: Marks, *given: Any) -> Marks:
    """Offsets move, and each slot goes on from its position of before."""
    moved: Marks = rightly(marks, *given)
    writers = {name: replace(known, position=marks.writer(name).position) for name, known in moved.writers.items()}
    return replace(moved, writers=writers)


@rule(
    "The number of slots does not change while a txlog of them is pending or rejected.",
    Fails(f"{REHASH}test_nothing_moves_while_a_txlog_of_a_slot_is_pending_or_rejected"),
)
@breaks("bookkeeper.commands.rehash._check_folder")
def rehash_passes_over_txlogs(rightly: Any, folder: Any, source: str) -> None:
    """The folder is not looked at."""


@rule(
    "Where a channel moves to another slot of a keyed table, versions of its keys are numbered on.",
    Fails(f"{REHASH}test_the_next_run_of_a_keyed_table_comes_behind_the_runs_of_all_slots"),
)
@breaks("bookkeeper.commands.rehash._moved")
def rehash_forgets_runs(rightly: Any, marks: Marks, names: Any, *given: Any) -> Marks:
    """A slot knows its own runs alone."""
    moved: Marks = rightly(marks, names, *given)
    own = {name: marks.writer(name).incarnations for name in moved.writers}
    return replace(moved, writers={name: replace(moved.writer(name), incarnations=own[name]) for name in own})


@rule(
    "A rehash leaves the position of a writer that is only named like a slot: by it, its input is not read twice.",
    Fails(f"{REHASH}test_a_writer_that_is_only_named_like_a_slot_keeps_its_position"),
)
@breaks("bookkeeper.commands.rehash._may_be_slot")
def rehash_goes_by_names(rightly: Any, known: Any) -> bool:
    """What is named like a slot is one."""
    return True


@rule(
    "No rows are taken with offsets that the bookkeeper does not know.",
    Fails(f"{WRITER}test_offsets_are_refused_before_rows_are_taken_where_the_card_does_not_name_version_3"),
    Fails(f"{WRITER}test_a_bookkeeper_that_was_set_back_gets_no_offsets_and_the_rows_are_kept"),
)
@breaks("writers.publish.channel_offsets.check_known")
def offsets_for_any_bookkeeper(rightly: Any, card: Any, offsets: Offsets) -> None:
    """The card is not asked which versions of txlogs are known."""


@rule(
    "A source is told only of offsets up to which rows are in the table.",
    Fails(f"{WRITER}test_a_slot_that_is_opened_goes_on_behind_pending_and_committed_txlogs"),
)
@breaks("writers.publish.channel_offsets.ChannelOffsets.committed")
def published_counts_as_committed(rightly: Any, slot: Any, table_uuid: str) -> Offsets:
    """What is published is acknowledged, though it may yet be rejected."""
    reached: Offsets = slot.reached
    return reached


@rule(
    "A channel is not forgotten while a txlog in pending/ or rejected/ names it.",
    Fails("tests/commands/test_forget.py::test_a_channel_that_a_pending_or_rejected_txlog_names_is_not_forgotten"),
)
@breaks("bookkeeper.commands.forget._names")
def named_channels_are_forgotten(rightly: Any, *given: Any) -> str | None:
    """Nobody looks into the txlogs of a slot."""
    return None
