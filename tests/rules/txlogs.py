"""
Which txlogs get in: listings, gaps, prefixes, positions, names, and what is rejected, held and replayed.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from unittest import mock

from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import PENDING, REJECTED, Folder
from bookkeeper.errors import BookkeeperError, NewerVersion, Reject, StorageUnavailable, TxlogCorrupt, Unfit
from tests.chaos.scenes.ticking import Ticking
from tests.rules.rule import Chapter, Patch, breaks, set_value
from tests.rules.systems import Fails, Fuzzed, Modelled, Recorded, Scene, Simulated
from tests.support.faults import AFTER

rule = Chapter()
GAPS = "tests/tick/test_gaps.py::"
POSITIONS = "tests/tick/test_positions.py::"
REPLAY = "tests/commands/test_replay.py::"
BAD_INPUT = "tests/tick/test_bad_input.py::"
TXLOG = "tests/contract/test_txlog.py::"


@rule(
    "Txlogs are listed before the table is loaded, and only a table loaded after the listing condemns one.",
    Modelled("ListFirst"),
    Fails(f"{BAD_INPUT}test_a_schema_or_spec_is_looked_for_in_a_fresh_load_before_it_counts_as_unknown"),
)
def condemned_by_an_old_view(patch: Patch) -> None:
    """Any view of the table is new enough to condemn a txlog."""
    from bookkeeper.tick.state import Attempt

    patch.setattr(Attempt, "fresh", property(lambda attempt: True, lambda attempt, fresh: None), raising=False)


@rule(
    "Of an incarnation a commit takes a prefix: nothing passes a txlog that could not be read.",
    Modelled("Prefix"),
    Fails("tests/tick/test_tick.py::test_a_storage_error_while_reading_n_never_lets_n_plus_1_pass"),
    Fails("tests/tick/test_plan.py::test_an_unread_txlog_stops_its_incarnation_and_no_other"),
)
def unread_txlogs_are_passed(patch: Patch) -> None:
    """A txlog that could not be read is passed over, like one that is missing."""
    from tests.rules.rule import put

    def stop(rightly: Any, planner: Any, key: Any, blocks: bool) -> None:
        if not blocks:
            rightly(planner, key, blocks)

    put(patch, "bookkeeper.tick.plan_batch._Planner._stop", stop)
    put(patch, "bookkeeper.tick.plan_batch._Planner._contiguous", lambda rightly, planner, name, mark: True)


@rule(
    "A gap is looked for by name before it becomes a hole: a listing is no snapshot.",
    Modelled("LookByName"),
    Fails(f"{GAPS}test_a_missing_txlog_that_is_there_by_name_is_waited_for"),
)
@breaks("bookkeeper.tick.intake.Intake.look_for")
def gaps_are_not_looked_for(rightly: Any, intake: Any, names: Iterable[TxlogName]) -> Any:
    """What a listing does not show is missing."""
    return frozenset(names), frozenset()


@rule(
    "Missing is a definite answer: trouble of the storage says nothing of what is there.",
    Fails(f"{GAPS}test_a_gap_that_cannot_be_looked_up_is_no_hole"),
    Fails("tests/tick/test_tick.py::test_a_missing_name_that_cannot_be_looked_up_makes_only_its_incarnation_wait"),
)
@breaks("bookkeeper.contract.txlog_folder.Folder.exists")
def unavailable_is_missing(rightly: Any, folder: Folder, name: TxlogName, place: str = PENDING) -> bool:
    """What the storage does not answer for is not there."""
    try:
        return bool(rightly(folder, name, place))
    except StorageUnavailable:
        return False


@rule(
    "What is doubtful is decided after a second listing and a load behind it.",
    Fails(f"{POSITIONS}test_a_predecessor_that_the_listing_missed_is_looked_for_again"),
)
def no_second_listing(patch: Patch) -> None:
    """One listing decides."""
    from bookkeeper.tick.plan_batch import Batch

    patch.setattr(Batch, "doubtful", property(lambda batch: False))


@rule(
    "What only the second listing shows is not rejected: that listing may have missed what came before it.",
    Fails(f"{POSITIONS}test_a_successor_that_only_the_second_listing_shows_is_not_rejected"),
)
@breaks("bookkeeper.tick.state.Tick.look_again")
def rejected_by_the_second_listing(rightly: Any, tick: Any, found: Sequence[Any]) -> None:
    """The second listing counts as two."""
    rightly(tick, found)
    tick.first_listed = frozenset(item.name for item in found)


@rule(
    "A txlog is durable in rejected/ before it leaves pending/.",
    Modelled("RejectFirst"),
    Recorded(8),
    Simulated(6000),
    Scene(Ticking, AFTER, "delete folder/pending/bad.", "wrong"),
    Fails(
        "tests/contract/test_folder_rejected_contract.py::"
        "test_one_that_dies_anywhere_while_rejecting_loses_nothing_and_can_be_finished"
    ),
)
@breaks("bookkeeper.contract.txlog_folder.Folder.reject")
def out_of_pending_first(
    rightly: Any,
    folder: Folder,
    name: Any,
    why: BookkeeperError,
    now: datetime,
    most: int = 2**26,
    place: str = PENDING,
) -> None:
    """A bad txlog leaves pending/ before it is in rejected/."""
    data = folder.store.read(f"{place}{name}")
    folder.store.delete_many([f"{place}{name}"])
    folder.store.create(f"{REJECTED}{name}", data)


@rule(
    "A txlog gets in only where it continues from its writer's committed position.",
    Modelled("Positions"),
    Recorded(8),
    Simulated(6000),
    Scene(Ticking, AFTER, "commit_table", "double"),
    Fails(f"{POSITIONS}test_of_two_runs_that_fork_the_chain_one_is_rejected_whole"),
)
@breaks("bookkeeper.tick.plan_batch._Planner._check_position")
def any_position(rightly: Any, planner: Any, txlog: Any) -> None:
    """A txlog is taken wherever in its source it begins."""


@rule(
    "A position that does not fit is rejected only when nothing that is pending can still move it.",
    Fails("tests/tick/test_plan.py::test_a_chain_is_followed_though_the_storage_lists_its_runs_the_wrong_way_round"),
    Fails(f"{POSITIONS}test_a_successor_waits_for_a_predecessor_that_cannot_be_read_now"),
)
@breaks("bookkeeper.tick.plan_batch._Planner.__init__")
def positions_are_rejected_at_once(rightly: Any, planner: Any, checked: Any, marks: Any, limits: Any) -> None:
    """The first look at a position decides."""
    rightly(planner, checked, marks, limits)
    planner.reject_positions, planner.waiting = True, _Nothing()


class _Nothing(set[str]):
    def __contains__(self, item: object) -> bool:
        return False


@rule(
    "A data file belongs to one txlog, by its name.",
    Simulated(400, "files are live twice"),
    Fails("tests/tick/test_file_names.py::test_a_file_of_another_txlog_is_refused_and_no_row_is_lost"),
    Fails("tests/tick/test_file_names.py::test_a_back_dated_txlog_that_names_the_file_of_a_pending_one_is_refused"),
)
@breaks("bookkeeper.tick.check_txlog.check_names")
def files_of_any_name(rightly: Any, name: Any, paths: Any, strict: bool) -> None:
    """A txlog names what files it likes."""


@rule(
    "Of a loose name the incarnation is a whole token: another run's that holds it is not taken for one's own.",
    Fails("tests/tick/test_file_names.py::test_names_without_the_incarnation_are_refused"),
)
@breaks("bookkeeper.contract.file_names._holds")
def incarnations_within_words(rightly: Any, segment: str, incarnation: str) -> bool:
    """An incarnation is found in the middle of a longer word."""
    return incarnation in segment


@rule(
    "A name of a strict table begins with its txlog's.",
    Fails("tests/tick/test_file_names.py::test_a_table_turns_strict_by_a_setting_and_back"),
)
@breaks("bookkeeper.tick.check_txlog.check_names")
def strict_names_are_loose(rightly: Any, name: Any, paths: Any, strict: bool) -> Any:
    """Every table is loose."""
    return rightly(name, paths, False)


@rule(
    "Two files of one txlog differ in more than upper and lower case.",
    Fails(f"{BAD_INPUT}test_a_bad_txlog_is_rejected_with_a_reason[one name twice, but for its case]"),
)
@breaks("bookkeeper.tick.check_txlog.check_names")
def names_differ_by_case(rightly: Any, name: Any, paths: Sequence[str], strict: bool) -> Any:
    """A txlog's names are not compared."""
    return next((loose for path in paths if (loose := rightly(name, [path], strict)) is not None), None)


@rule(
    "The name that owns a file is as long as it can be: a writer's name may look like another's prefix.",
    Fails("tests/tick/test_file_names.py::test_names_of_other_txlogs_are_refused"),
)
def the_shortest_name_owns(patch: Patch) -> None:
    """Of `a-<uuid>-0000000001-<uuid>-...` writer `a` is the owner."""
    import re

    from bookkeeper.contract import file_names

    patch.setattr(file_names, "_OWNED", re.compile(file_names._OWNED.pattern.replace("{0,62}", "{0,62}?", 1)))


@rule(
    "A txlog is for the table whose uuid it names.",
    Fails(f"{BAD_INPUT}test_a_bad_txlog_is_rejected_with_a_reason[another table]"),
    Fails(
        "tests/tick/test_restored.py::test_a_table_made_again_under_its_name_loses_and_takes_nothing_until_a_person_decides"
    ),
)
@breaks("bookkeeper.tick.intake.check")
def txlogs_of_any_table(rightly: Any, txlog: Any, rules: Any, now_ms: int) -> Any:
    """The table's uuid is not compared."""
    from dataclasses import replace

    return rightly(txlog, replace(rules, table_uuid=txlog.table_uuid), now_ms)


@rule(
    "A data file lies below the table's data path.",
    Fuzzed(2000),
    Fails(f"{BAD_INPUT}test_a_bad_txlog_is_rejected_with_a_reason[a path beside the data path]"),
)
@breaks("bookkeeper.tick.check_txlog._check_row")
def files_anywhere(rightly: Any, row: Any, path: str, rules: Any, required: Any) -> None:
    """Any location is taken."""


@rule(
    "A location that storage would interpret is refused.",
    Fuzzed(2000),
    Fails("tests/contract/test_txlog.py::test_a_path_that_readers_would_take_for_another_is_refused"),
)
def suspect_locations_are_taken(patch: Patch) -> None:
    """Nothing in a location is suspect."""
    import re

    set_value(patch, "bookkeeper.stores.locations._SUSPECT", re.compile("(?!)"))


@rule(
    "Statistics of an entry are what readers plan by: those of a txlog are checked, and none is lost.",
    Fuzzed(2000),
)
@breaks("bookkeeper.format.entries._mapped")
def statistics_are_dropped(rightly: Any, pairs: Any) -> dict[int, Any]:
    """Statistics are lost when an entry is decoded."""
    return {}


@rule(
    "Each data file is there, of the size and format that its txlog says, before it is committed.",
    Fails(f"{BAD_INPUT}test_a_bad_txlog_is_rejected_with_a_reason[a file that is not there]"),
    Fails(f"{BAD_INPUT}test_a_bad_txlog_is_rejected_with_a_reason[a file of another size]"),
)
@breaks("bookkeeper.tick.intake.file_error")
def files_are_not_looked_up(rightly: Any, file: Any, head: Any, named_by: str) -> None:
    """A data file that is missing is committed."""


@rule(
    "What is no file of the table, such as one behind a link, is rejected, and the others get in.",
    Fails(
        "tests/tick/test_linked_folders.py::test_a_txlog_that_names_a_file_through_a_link_is_rejected_and_the_others_get_in"
    ),
    Fails("tests/tick/test_linked_folders.py::test_a_delete_file_behind_a_link_is_refused"),
)
@breaks("bookkeeper.tick.intake.file_error")
def what_is_no_file_is_committed(rightly: Any, file: Any, head: Any, named_by: str) -> Any:
    """Whatever has the name is taken."""
    return None if isinstance(head, Unfit) else rightly(file, head, named_by)


@rule(
    "The commit waits for the look-up of its data files.",
    Fails("tests/tick/test_flight.py::test_a_data_file_that_is_missing_ends_the_attempt_also_when_all_else_is_written"),
)
@breaks("bookkeeper.tick.tick.Bookkeeper._confirm")
def the_lookup_is_too_late(rightly: Any, book: Any, tick: Any, attempt: Any) -> None:
    """What the look-up finds stops no commit."""
    with suppress(Exception):
        rightly(book, tick, attempt)


@rule(
    "Counts that no file can have are refused, before they are added up.",
    Fails(
        "tests/tick/test_lying_counts.py::test_three_txlogs_whose_rows_no_sum_holds_are_refused_and_the_good_one_gets_in"
    ),
)
@breaks("bookkeeper.tick.check_txlog.impossible_counts")
def any_counts(rightly: Any, records: int, size: int) -> str:
    """A file may have any number of records."""
    return ""


@rule(
    "A txlog that was cut, also behind a block, is refused: it says how many entries it has.",
    Fails("tests/contract/test_txlog.py::test_a_txlog_that_announces_another_number_of_entries_is_refused"),
    Fails("tests/contract/test_txlog.py::test_a_txlog_cut_behind_its_header_or_any_block_is_refused"),
)
@breaks("bookkeeper.contract.txlog._check_count")
def entries_are_not_counted(rightly: Any, *given: Any) -> None:
    """The announced number is not compared."""


@rule(
    "A txlog from the future is refused: nothing would be older, and pruning could not tell it.",
    Fails("tests/tick/test_clocks.py::test_a_writer_whose_clock_is_hours_ahead_is_rejected_and_no_other"),
    Fails("tests/tick/test_check_txlog.py::test_an_hour_ahead_is_allowed_and_no_more"),
)
def the_future_is_taken(patch: Patch) -> None:
    """A txlog may be created at any time."""
    set_value(patch, "bookkeeper.tick.check_txlog.FUTURE_MS", 10**15)


@rule(
    "A run from the future is refused: on a keyed table no other run would ever come after it.",
    Fails("tests/tick/test_future_runs.py::test_on_an_append_only_table_it_is_refused_too_and_the_others_get_in"),
)
@breaks("bookkeeper.tick.check_txlog.check_started")
def runs_from_the_future(rightly: Any, name: Any, marks: Any, now_ms: int) -> None:
    """An incarnation may begin at any time."""


@rule(
    "A newer version is held, loudly, never rejected: the bookkeeper is upgraded first.",
    Fails(f"{BAD_INPUT}test_a_newer_version_is_held_loudly_once_and_gets_in_never"),
)
@breaks("bookkeeper.tick.intake.Intake._decode")
def newer_versions_are_rejected(rightly: Any, intake: Any, name: Any, data: bytes) -> None:
    """What this release does not know is corrupt."""
    try:
        intake.decoded[name] = txlog_format.decode(name, data, intake.most_bytes)
    except NewerVersion as error:
        intake.bad[name] = TxlogCorrupt(str(error))
    except Exception as error:  # noqa: BLE001 - as the product does
        intake._note(name, error)


@rule(
    "An error of one txlog costs only that one: the others of its tick get in.",
    Fails(f"{BAD_INPUT}test_a_defect_while_decoding_holds_one_txlog_and_stops_no_other"),
)
@breaks("bookkeeper.tick.intake.Intake._note")
def one_bad_txlog_ends_the_tick(rightly: Any, intake: Any, name: Any, error: Exception) -> None:
    """What is wrong with one txlog is raised."""
    raise error


@rule(
    "A txlog that makes the engine fail is found and held, and the others get in.",
    Fails("tests/tick/test_lying_counts.py::test_a_txlog_that_the_engine_fails_on_is_held_and_the_others_get_in"),
)
@breaks("bookkeeper.tick.planning.culprits")
def no_culprit_is_looked_for(rightly: Any, txlogs: Any, rehearse: Any) -> dict[Any, Any]:
    """A defect while the commit is built ends the tick."""
    return {}


@rule(
    "Trouble of the storage condemns no txlog: it waits.",
    Fails("tests/tick/test_bad_deletes.py::test_storage_that_fails_while_a_footer_is_read_rejects_nothing"),
    Fails("tests/tick/test_tick.py::test_a_data_file_that_cannot_be_looked_up_makes_its_incarnation_wait"),
)
@breaks("bookkeeper.tick.intake.Intake._wrong_with")
def trouble_condemns(rightly: Any, intake: Any, file: Any, head: Any, footer: Any) -> Any:
    """A data file that cannot be looked up is missing."""
    wrong = rightly(intake, file, head, footer)
    return Reject(str(wrong)) if isinstance(wrong, StorageUnavailable) else wrong


@rule(
    "No more of a txlog is read than was listed, and none that is too large.",
    Fails("tests/tick/test_untrusted.py::test_one_that_grows_after_it_was_found_is_refused_for_that"),
)
@breaks("bookkeeper.contract.txlog_folder.Folder.read")
def txlogs_of_any_size(
    rightly: Any, folder: Any, names: Any, sizes: Any = None, most: int = 2**30, place: str = PENDING
) -> Any:
    """The listed size is no bound."""
    return rightly(folder, names, None, most, place)


@rule(
    "A replayed txlog stays in rejected/ until it is in.",
    Modelled("ReplayKeepsRejected"),
    Fails(f"{REPLAY}test_a_replayed_txlog_gets_in_exactly_once_and_only_then_leaves_rejected"),
    Fails(
        "tests/contract/test_folder_rejected_contract.py::test_replay_gives_it_back_under_its_own_name_and_keeps_the_copy"
    ),
)
@breaks("bookkeeper.contract.txlog_folder.Folder.replay")
def replay_moves(rightly: Any, folder: Folder, name: Any, most: int = 2**26) -> None:
    """A replay takes the txlog out of rejected/."""
    rightly(folder, name, most)
    folder.discard_rejected([name])


@rule(
    "A replay asks whether the files are in the table, or were.",
    Modelled("ReplayAsks"),
    Fails(f"{REPLAY}test_a_txlog_whose_file_was_compacted_since_is_not_replayed"),
)
@breaks("bookkeeper.commands.replay._check_paths")
def replay_does_not_ask(rightly: Any, txlog: Any, ledger: Any, view: Any) -> None:
    """A replay puts files in that are in already."""


@rule(
    "Rejected as a double means for good: its rows are in by another txlog, in files that may be compacted by now.",
    Fails(f"{REPLAY}test_what_a_double_named_was_compacted_and_expired"),
    Fails(f"{REPLAY}test_a_txlog_that_names_files_of_another_is_never_replayed"),
)
@breaks("bookkeeper.contract.txlog_folder.Folder.reason")
def doubles_are_replayed(rightly: Any, folder: Any, name: Any) -> dict[str, Any]:
    """Why a txlog was rejected is forgotten."""
    return {}


@rule(
    "A replay refuses a position that no longer fits.",
    Fails(f"{REPLAY}test_a_txlog_whose_position_was_taken_is_not_replayed"),
)
@breaks("bookkeeper.commands.replay._check_position")
def replay_at_any_position(rightly: Any, txlog: Any, view: Any) -> None:
    """Any position is replayed."""


@rule(
    "Rejected txlogs stay until they are in, or lost their position long ago: nothing else is swept.",
    Fails(f"{GAPS}test_the_sweep_takes_lost_positions_by_age_and_leaves_every_other_reject"),
)
@breaks("bookkeeper.tick.sweep_rejected.Sweep._lost_its_position")
def rejects_are_swept(rightly: Any, sweep: Any, item: Any, now: datetime) -> bool:
    """Whatever was rejected long ago is swept."""
    return bool(item.modified < now - sweep.settings.orphan_age)


@rule(
    "A hint is only a hint: what is hinted and not there is no hole, and what is not hinted is found by a listing.",
    Fails("tests/discover/test_find_pending.py::test_a_lost_hint_costs_time_until_the_next_listing"),
)
@breaks("bookkeeper.discover.find_pending.PendingIndex.found")
def hints_are_the_truth(rightly: Any, index: Any, *given: Any) -> Any:
    """After the first listing none follows."""
    if index.listed:
        index.look_every = index.look_every * 10**6
    return rightly(index, *given)


@rule(
    "More names of writers than the marks have room for are rejected with a reason; known writers go on.",
    Fails("tests/tick/test_writer_room.py::test_one_more_writer_is_rejected_and_the_others_of_its_tick_get_in"),
)
@breaks("bookkeeper.tick.writer_room.WriterRoom.take")
def any_number_of_writers(rightly: Any, room: Any, txlog: Any) -> None:
    """The marks take any number of writers."""


@rule(
    "A key of ours that is not known is refused: its writer meant something by it that would not happen.",
    Fails(f"{TXLOG}test_a_key_of_ours_that_is_not_known_is_refused"),
)
@breaks("bookkeeper.contract.txlog._check_keys")
def unknown_keys_are_passed_over(rightly: Any, own: Any) -> None:
    """A key that is not known means nothing."""
    with suppress(TxlogCorrupt):
        rightly(own)


@rule(
    "The header of a txlog says what its name says: a copy under another name is refused.",
    Fails(f"{TXLOG}test_a_txlog_under_another_name_is_refused"),
)
@breaks("bookkeeper.contract.txlog._check_name")
def any_name_fits_the_header(rightly: Any, name: Any, own: Any) -> None:
    """The name says which txlog it is."""


@rule(
    "Positions are short: marks keep one of each writer for ever.",
    Fails(f"{TXLOG}test_a_position_of_more_than_1024_bytes_is_refused_on_both_sides"),
)
@breaks("bookkeeper.contract.txlog._own_keys")
def positions_of_any_length(rightly: Any, meta: Any) -> Any:
    """A txlog is read whatever length its position has."""
    with mock.patch("bookkeeper.contract.txlog.POSITION_BYTES", 2**16):
        return rightly(meta)
