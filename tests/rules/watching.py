"""
Objects that are dropped below a prefix: each version once, and it goes only when it is in.
"""

import os
from typing import Any

from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
WATCH = "tests/watch/test_watch.py::"
CRASHES = "tests/watch/test_crashes.py::"


@rule(
    "An object is deleted only after the commit of its rows was seen: what is published may still be rejected.",
    Fails(f"{CRASHES}test_a_plan_is_there_before_its_txlog_and_its_objects_until_it_is_in"),
    Fails(f"{WATCH}test_a_txlog_that_lost_its_place_says_nothing_about_its_objects"),
)
@breaks("writers.watch.watcher.Watcher._until_committed")
def objects_go_when_they_are_published(rightly: Any, watcher: Any, writer: Any) -> bool:
    """Nothing is waited for."""
    return False


@rule(
    "A run that looks behind its txlogs finds the position of the last one, or a txlog was given up: it is not in.",
    Fails(f"{WATCH}test_objects_of_a_txlog_that_was_given_up_stay_and_are_loaded_again"),
)
@breaks("writers.publish.pending_monitor.PendingMonitor.check_end")
def given_up_counts_as_in(rightly: Any, monitor: Any) -> None:
    """What the marks pass over is taken for committed."""


@rule(
    "An object is deleted only while it has the tag of its plan: what replaced it is not in the table.",
    Fails(f"{WATCH}test_what_replaced_an_object_before_its_commit_was_seen_stays_and_is_loaded_next"),
    Fails(f"{CRASHES}test_an_object_that_is_replaced_at_any_operation_is_doubled_in_no_version[delete]"),
)
@breaks("writers.watch.prefix.Prefix._finish")
def objects_go_whatever_their_version(rightly: Any, prefix: Any, to: str, item: Any) -> None:
    """The tag is not looked at."""
    prefix.store.delete_many([item.key])


@rule(
    "A plan is durable before its txlog: after a crash nothing else says which objects are in the table.",
    Fails(f"{CRASHES}test_a_plan_is_there_before_its_txlog_and_its_objects_until_it_is_in"),
    Fails(f"{CRASHES}test_a_crash_at_each_operation_loses_and_doubles_nothing[delete]"),
)
@breaks("writers.watch.watcher.Watcher._load")
def plans_come_after_their_txlogs(rightly: Any, watcher: Any, writer: Any, plan: Any) -> bool:
    """It is written once the txlog is in."""
    write, finish = watcher._prefix.write, watcher._prefix.finish
    watcher._prefix.write = lambda plan: None
    watcher._prefix.finish = lambda plan: (write(plan), finish(plan))
    try:
        return bool(rightly(watcher, writer, plan))
    finally:
        watcher._prefix.write, watcher._prefix.finish = write, finish


@rule(
    "A run reads objects only after all of the last plan are gone, or are known to stay: else they would be in twice.",
    Fails(f"{CRASHES}test_a_crash_at_each_operation_loses_and_doubles_nothing[delete]"),
    Fails(f"{CRASHES}test_a_crash_at_each_operation_loses_and_doubles_nothing[move]"),
)
@breaks("writers.watch.prefix.Prefix.settle")
def the_last_plan_is_not_finished(rightly: Any, prefix: Any, last: Any, go_on: bool) -> int:
    """What a crash left of it stays."""
    return 0 if last is None else int(last.number)


@rule(
    "A plan is believed only where the table's marks say its digest: whoever drops objects can write there.",
    Fails(f"{WATCH}test_a_plan_that_others_have_changed_deletes_nothing[forged]"),
    Fails(f"{WATCH}test_a_plan_is_what_it_was"),
)
@breaks("writers.watch.plan.digest_of")
def plans_are_known_by_their_names(rightly: Any, data: bytes) -> str:
    """All plans have one digest."""
    return "0" * 32


@rule(
    "A plan that others replaced is taken again by no other run: a late txlog for it may still come.",
    Fails(f"{WATCH}test_a_late_txlog_of_a_run_that_was_stopped_loses_or_is_the_only_one[between]"),
    Fails(f"{CRASHES}test_two_watchers_that_come_between_each_other_at_any_operation_double_nothing[False]"),
)
@breaks("writers.watch.prefix.Prefix.settle")
def plans_without_txlogs_go_at_the_start(rightly: Any, prefix: Any, last: Any, go_on: bool) -> int:
    """Those behind the last one that is in."""
    number: int = rightly(prefix, last, go_on)
    known = prefix._known()
    prefix.store.delete_many([key for key, (_, position) in known.items() if position.number > number])
    return number


@rule(
    "A prefix is the one that was read only where the last plan is known there: a copy has objects that are in.",
    Fails(f"{WATCH}test_a_copy_of_the_prefix_and_one_that_was_restored_are_refused"),
    Fails(f"{WATCH}test_a_table_that_lost_the_position_is_refused"),
)
@breaks("writers.watch.prefix.Prefix.settle")
def any_prefix_goes_on(rightly: Any, prefix: Any, last: Any, go_on: bool) -> int:
    """It goes on with every one."""
    return int(rightly(prefix, last, True))


@rule(
    "A delete by tag deletes no other version, whatever comes between the look and the delete.",
    Fails(
        "tests/stores/test_local.py::test_a_file_replaced_while_it_is_deleted_by_its_tag_outlives_a_crash_at_any_step"
    ),
)
@breaks("bookkeeper.stores.disk.delete_exactly")
def a_file_is_deleted_after_a_look(rightly: Any, folder: int, name: str, aside: str, known: Any) -> bool:
    """By its name, which may be another file's by now."""
    os.unlink(name, dir_fd=folder)
    return True
