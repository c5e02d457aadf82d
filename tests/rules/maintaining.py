"""
Tables that a service of the catalog maintains: who deletes what, and what may lie where.
"""

from typing import Any

from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
HERE = "tests/reaper/test_maintained_by_catalog.py::"


@rule(
    "Where a service of the catalog deletes files, the reaper expires snapshots and deletes none.",
    Fails(HERE + "test_snapshots_expire_and_no_file_goes"),
    Fails(HERE + "test_a_run_that_is_killed_anywhere_deletes_nothing_and_the_next_one_ends_it"),
    Fails(HERE + "test_a_journal_of_a_run_that_still_deleted_is_dropped_and_its_files_stay"),
    Fails(HERE + "test_orphans_are_listed_and_never_swept"),
)
@breaks("reaper.context.is_by_catalog")
def the_reaper_deletes_beside_a_service(rightly: Any, settings: Any) -> bool:
    """The reaper takes no notice of who maintains the table."""
    return False


@rule(
    "Where a service of the catalog deletes what no snapshot names, the orphan age of the card is at most half of its.",
    Fails(HERE + "test_ages_stay_within_those_of_the_service"),
)
@breaks("tests.reaper.test_maintained_by_catalog.maintained", "bookkeeper.config.load.maintained")
def the_age_of_the_service_is_ignored(rightly: Any, table: Any) -> Any:
    """The settings are as they are written."""
    return table


@rule(
    "Where a service of the catalog deletes what no snapshot names, the txlog folder lies outside of the table.",
    Fails(HERE + "test_a_folder_below_the_table_is_refused"),
)
@breaks("bookkeeper.contract.txlog_folder.is_by_catalog")
def a_folder_where_the_service_deletes(rightly: Any, settings: Any) -> bool:
    """The folder may lie below the table as without such a service."""
    return False


@rule(
    "A table with keys is refused while a service of the catalog compacts it.",
    Fails(HERE + "test_a_table_with_keys_is_refused_by_init_daemon_and_reaper_while_the_service_compacts"),
)
@breaks("bookkeeper.tick.loaded.refuse_keys", "bookkeeper.commands.init.refuse_keys", "reaper.context.refuse_keys")
def keys_beside_the_compaction_of_a_service(rightly: Any, settings: Any) -> None:
    """Keys are taken as without such a service."""


@rule(
    "What no catalog answers is no answer: a redirected commit did not succeed, a proxy's 404 drops no table.",
    Fails("tests/catalogs/test_answers.py::test_after_a_commit_the_marks_decide_whatever_was_answered[redirect]"),
    Fails("tests/catalogs/test_answers.py::test_a_load_says_what_was_answered_and_what_to_do[page-404]"),
    Fails("tests/catalogs/test_answers.py::test_a_redirect_is_never_followed_nor_a_secret_sent_there"),
)
@breaks("bookkeeper.catalogs.rest._checked")
def any_answer_is_a_catalogs(rightly: Any, send: Any) -> Any:
    """Redirects are followed, and pages read."""
    return send
