"""
Schemas that grow on request: which columns are granted, and their commit.
"""

from typing import Any

from tests.rules.rule import Chapter, Patch, breaks
from tests.rules.systems import Fails

rule = Chapter()
COLUMNS = "tests/tick/test_columns.py::"


@rule(
    "Columns of one tick have field ids of their own: with one id, readers take the values of one for the other's.",
    Fails(f"{COLUMNS}test_columns_of_one_tick_have_field_ids_of_their_own_and_their_own_values"),
)
@breaks("bookkeeper.tick.decide_columns._Check.add")
def two_columns_with_one_field_id(rightly: Any, check: Any, request: Any) -> None:
    """Each new column has the id behind the table's last one."""
    before, check.plan.added = check.plan.added, 0
    may_add, check.may_add = check.may_add, check.may_add - before
    try:
        rightly(check, request)
    finally:
        check.plan.added, check.may_add = before + check.plan.added, may_add


@rule(
    "A change of the schema is guarded by the schema and the last field id that were loaded.",
    Fails(f"{COLUMNS}test_a_foreign_schema_change_between_load_and_commit_is_a_conflict_and_then_both_are_in"),
)
def schema_changes_are_not_guarded(patch: Patch) -> None:
    """A schema is changed whatever it is by now."""
    from bookkeeper.ledger import schema_commit as columns

    whole = columns.catalogs.commit
    patch.setattr(
        "bookkeeper.ledger.schema_commit.catalogs.commit",
        lambda table, guards, updates: whole(table, guards[:1], updates),
    )


@rule(
    "A request is judged by a table that was loaded after it was listed.",
    Fails(f"{COLUMNS}test_a_request_that_knows_more_than_our_view_is_not_refused_for_it"),
)
@breaks("bookkeeper.tick.answer_column_requests.Columns._load")
def requests_are_judged_by_an_old_view(rightly: Any, columns: Any, known: Any) -> Any:
    """The tick's view will do."""
    return known if not columns.sent else rightly(columns, known)


@rule(
    "Requests touch neither data nor marks.",
    Fails(f"{COLUMNS}test_requests_touch_neither_data_nor_marks"),
)
@breaks("bookkeeper.tick.answer_column_requests.set_columns")
def a_column_makes_a_snapshot(rightly: Any, view: Any, columns: Any) -> None:
    """The table is committed to once more."""
    rightly(view, columns)
    table = view.table.catalog.load_table(view.table.name())
    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass


@rule(
    "Beyond a limit no column is added: names that are data must not grow the schema.",
    Fails(f"{COLUMNS}test_beyond_a_limit_no_column_is_added_and_the_answer_names_it"),
)
@breaks("bookkeeper.tick.decide_columns._Check._check_new")
def any_number_of_columns(rightly: Any, check: Any, name: str) -> None:
    """Any name becomes a column."""


@rule(
    "All schemas of a table together are bounded: every commit carries them.",
    Fails(f"{COLUMNS}test_requests_add_no_schemas_beyond_a_size_of_all_whichever_bookkeeper_grants_them"),
)
@breaks("bookkeeper.tick.decide_columns._Check._take_bytes")
def schemas_of_any_size(rightly: Any, check: Any, more: int) -> None:
    """The size of schemas is not added up."""


@rule(
    "Keys and partition columns keep their type.",
    Fails(f"{COLUMNS}test_widening_follows_iceberg_and_spares_what_rows_are_placed_by"),
    Fails(f"{COLUMNS}test_keys_keep_their_type"),
)
@breaks("bookkeeper.tick.decide_columns._Check._fixed")
def keys_are_widened(rightly: Any, check: Any) -> set[int]:
    """Any column may be widened."""
    return set()


@rule(
    "No writer starts a retention that has no column yet: rows would be dropped by what it names.",
    Fails(f"{COLUMNS}test_no_writer_starts_a_retention_that_has_no_column_yet"),
)
@breaks("bookkeeper.tick.decide_columns._Check._check_retention")
def writers_start_retention(rightly: Any, check: Any, name: str, kind: Any) -> None:
    """A column of times may be retention's."""


@rule(
    "No column is added whose name looks like another's: a reader could not tell them apart.",
    Fails(f"{COLUMNS}test_of_two_look_alikes_in_one_tick_one_is_added_and_honest_names_of_other_scripts_are"),
)
@breaks("bookkeeper.tick.decide_columns.shape")
def look_alikes_are_added(rightly: Any, name: str) -> str:
    """Names are the same only when their letters are."""
    return name
