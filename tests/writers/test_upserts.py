"""Upserts and deletes by key: what a publish makes of them, against a dict replayed in order."""

import re
import uuid
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec

from bookkeeper.contract.names import TxlogName, new_incarnation, started_ms
from bookkeeper.contract.txlog import StepFile
from bookkeeper.errors import ConfigInvalid, NotPossible, SchemaRefused
from tests.packaging.project import ROOT
from tests.support.desk import START, Desk, only, rows
from tests.support.upserts import (
    BY_KEY,
    BY_VALUE,
    KEYED,
    keyed_card,
    keys,
    merged,
    parquet,
    state,
    streamed,
    table,
)
from writers.files import upsert_steps as steps
from writers.files.upsert_steps import ORDER_BITS, first_order
from writers.writer import Writer


@pytest.fixture
def keyed(desk: Desk) -> Desk:
    keyed_card(desk)
    return desk


def deletes_of(desk: Desk) -> list[StepFile]:
    """The delete files of the only txlog."""
    found = only(desk.txlogs()).deletes
    files = [entry.data_file for entry in found.body.entries]
    return [StepFile(file, number) for file, number in zip(files, found.numbers, strict=True)]


def test_a_step_is_one_data_file_and_one_delete_file_with_one_number(keyed: Desk) -> None:
    with keyed.writer() as writer:
        writer.upsert(table([(2, "b"), (1, "a")]))
        writer.delete(keys(3))
    txlog = only(keyed.txlogs())
    assert (txlog.span, txlog.numbers, txlog.deletes.numbers) == (2, (0, 1), (1,))
    assert txlog.deletes.equality_ids == ((1,),)
    shadow, live = txlog.files
    assert [(row["id"], row["op"], row["value"]) for row in keyed.rows([live])] == [(2, "U", "b"), (1, "U", "a")]
    assert [(row["id"], row["op"], row["value"]) for row in keyed.rows([shadow])] == [(3, "D", None)]


def test_a_delete_file_holds_the_touched_keys_sorted_once_with_bounds_and_field_ids(keyed: Desk) -> None:
    with keyed.writer() as writer:
        writer.upsert(table([(9, "a"), (5, "b"), (9, "c")]))
        writer.delete(keys(7, 5, 7))
        writer.write(table([(1, "new")]))
    file, _ = only(deletes_of(keyed))
    found = parquet(keyed, file)
    assert found.read().to_pydict() == {"id": [5, 7, 9]}
    assert found.schema_arrow.field("id").metadata[b"PARQUET:field_id"] == b"1"
    assert (file.lower_bounds, file.upper_bounds) == (
        {1: (5).to_bytes(8, "little")},
        {1: (9).to_bytes(8, "little")},
    )
    assert (file.value_counts, file.null_value_counts) == ({1: 3}, {1: 0})
    assert file.path.endswith("-deletes.parquet")


def test_a_publish_of_inserts_alone_is_version_1_whatever_ended_its_steps(keyed: Desk) -> None:
    with keyed.writer() as writer:
        writer.write(table([(1, "a")]))
        writer.roll()
        writer.write(table([(2, "b")]))
    txlog = only(keyed.txlogs())
    assert (txlog.deletes, txlog.numbers, txlog.span) == (None, (), 1)
    assert state(keyed, [txlog]) == {1: "a", 2: "b"}


def test_inserts_that_fill_a_step_go_on_in_the_same_data_file(keyed: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_ROWS", 2)
    with keyed.writer() as writer:
        writer.write(table([(number, "a") for number in range(7)]))
    assert [file.record_count for file in only(keyed.txlogs()).files] == [7]


def test_inserts_before_a_step_with_deletes_keep_a_file_of_their_own(
    keyed: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "STEP_ROWS", 2)
    with keyed.writer() as writer:
        writer.write(table([(1, "a"), (2, "a")]))
        writer.upsert(table([(1, "b"), (3, "b")]))
    assert only(keyed.txlogs()).numbers == (1, 2)
    assert state(keyed, keyed.txlogs()) == {1: "b", 2: "a", 3: "b"}


def test_deletes_alone_in_a_table_without_an_op_column_are_a_txlog_without_data(desk: Desk) -> None:
    keyed_card(desk, columns={})
    with desk.writer() as writer:
        writer.delete(keys(1))
        assert writer.unpublished_rows == 1
    txlog = only(desk.txlogs())
    assert (txlog.files, txlog.span, txlog.deletes.numbers) == ((), 2, (1,))


def test_a_memory_bound_ends_a_step_and_the_next_one_has_the_next_number(
    keyed: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "STEP_ROWS", 3)
    with keyed.writer() as writer:
        for number in range(10):
            writer.upsert(table([(number % 2, f"v{number}")]))
    txlog = only(keyed.txlogs())
    assert txlog.deletes.numbers == (1, 2, 3, 4)
    assert state(keyed, [txlog]) == {0: "v8", 1: "v9"}


def test_a_bound_in_bytes_ends_a_step_too(keyed: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_BYTES", 1000)
    with keyed.writer() as writer:
        for number in range(4):
            writer.upsert(table([(0, f"{number}" * 600)]))
    assert only(keyed.txlogs()).span == 5
    assert state(keyed, keyed.txlogs()) == {0: "3" * 600}


def test_an_upsert_that_moves_a_row_to_another_partition_leaves_one(desk: Desk) -> None:
    keyed_card(desk, BY_VALUE)
    with desk.writer() as writer:
        for value in ("a", "b"):
            writer.upsert(table([(1, value), (2, "a")]))
            writer.publish()
    assert only(only(desk.txlogs()[1:]).deletes.body.entries).data_file.partition == ()
    assert state(desk, desk.txlogs()) == {1: "b", 2: "a"}


def test_deletes_bound_to_partitions_are_one_file_for_each(desk: Desk) -> None:
    keyed_card(desk, BY_KEY, deletes=1)
    with desk.writer() as writer:
        writer.upsert(table([(number, "a") for number in range(30)]))
    txlog = only(desk.txlogs())
    assert {file.partition for file, _ in deletes_of(desk)} == {(0,), (1,), (2,)} == {f.partition for f in txlog.files}
    for file, _ in deletes_of(desk):
        found = desk.read(file)["id"].to_pylist()
        assert found == sorted(found)


def test_nothing_reaches_the_table_of_a_key_that_is_null_or_missing(keyed: Desk) -> None:
    with keyed.writer() as writer:
        with pytest.raises(SchemaRefused) as caught:
            writer.delete([{"id": 1, "value": "a"}])
        assert "`change` takes whole rows" in caught.value.hint and "select(['id'])" in caught.value.hint
        for act, given, why in (
            (writer.upsert, {"id": [1, None], "value": ["a", "b"]}, "'id' holds 1 null"),
            (writer.upsert, {"value": ["a"]}, "'id' is missing"),
            (writer.delete, {"id": [None]}, "'id'"),
            (writer.delete, {"id": [1], "value": ["a"]}, "'value' is no key; a delete takes id"),
            (writer.upsert, {"id": [1], "op": ["U"]}, "'op' is filled by the writer"),
            (writer.write, {"id": [1], "seq": [1]}, "'seq' is filled by the writer"),
        ):
            with pytest.raises(SchemaRefused, match=why):
                act(pa.table(given))
        assert writer.unpublished_rows == 0
        writer.upsert(table([(1, "kept")]))
    assert state(keyed, keyed.txlogs()) == {1: "kept"}


def test_changes_are_upserts_and_deletes_in_their_order(keyed: Desk) -> None:
    rows = table([(1, "a"), (1, None), (2, None), (2, "b"), (3, None)])
    with keyed.writer() as writer:
        writer.change(rows, pa.array([False, True, True, False, False]))
        for deleted, why in (
            (pa.array([True]), "has 1 values of type boolean"),
            (pa.array([None] * 5, pa.bool_()), "5 of them null"),
            (pa.array([1, 0, 0, 1, 1]), "5 values of type long"),
            ([True], "has 1 values of type boolean, 0 of them null; there are 5 rows"),
            (["yes"] * 5, "5 values of type string"),
            (True, "`deleted` is bool"),
            ([object()], "`deleted` is list"),
        ):
            with pytest.raises(SchemaRefused, match=why) as caught:
                writer.change(rows, deleted)
            assert "change(rows, [True, False])" in caught.value.hint
        writer.change(table([(3, None)]), [True])
        writer.change([{"id": 3}], (False,))
    assert state(keyed, keyed.txlogs()) == {2: "b", 3: None}


def test_an_append_only_table_takes_no_upserts_and_no_deletes(desk: Desk) -> None:
    with desk.writer() as writer:
        for act in (writer.upsert, writer.delete):
            with pytest.raises(NotPossible, match="append-only") as caught:
                act(rows("a"))
            assert "init --key" in caught.value.hint
        writer.write(rows("a"))
    assert desk.keys() == ["a"]


def test_a_table_that_gets_keys_asks_for_a_new_run_and_loses_nothing(desk: Desk) -> None:
    desk.set_card(KEYED, spec=BY_VALUE)
    with desk.writer() as writer:
        writer.write(table([(1, "a")]))
        keyed_card(desk, BY_VALUE)
        writer.roll()
        with pytest.raises(NotPossible, match="has keys now"):
            writer.write(table([(2, "b")]))
        writer.publish()
        with pytest.raises(NotPossible, match="has keys now"):
            writer.write(table([(2, "b")]))
    with desk.writer() as writer:
        writer.upsert(table([(1, "b")]))
    assert state(desk, desk.txlogs()) == {1: "b"}


def test_a_delete_spec_that_new_files_would_not_have_is_refused(desk: Desk) -> None:
    keyed_card(desk, BY_VALUE, deletes=7)
    with desk.writer() as writer:
        with pytest.raises(NotPossible, match="partition spec"):
            writer.upsert(table([(1, "a")]))
        writer.write(table([(1, "a")]))
        writer.publish()
        keyed_card(desk, BY_VALUE)
        writer.upsert(table([(1, "b")]))
    assert state(desk, desk.txlogs()) == {1: "b"}


def test_deletes_bound_to_partitions_that_new_files_do_not_have_are_refused(desk: Desk) -> None:
    keyed_card(desk, BY_KEY, deletes=1)
    with desk.writer() as writer:
        writer.upsert(table([(1, "a")]))
        writer.publish()
        evolved = PartitionSpec(*BY_VALUE.fields, spec_id=2)
        specs = [item.model_dump(mode="json", by_alias=True) for item in (BY_KEY, evolved)]
        keyed_card(desk, evolved, deletes=1, specs=tuple(specs))
        writer.roll()
        with pytest.raises(NotPossible, match="partition spec"):
            writer.upsert(table([(1, "b")]))
    assert state(desk, desk.txlogs()) == {1: "a"}


def test_versions_that_were_superseded_are_kept_only_with_an_op_column(desk: Desk) -> None:
    keyed_card(desk, columns={"order-field-id": 4})
    with pytest.raises(NotPossible, match="op-column"):
        desk.writer(keep="all")
    with pytest.raises(ConfigInvalid, match="'some'"):
        desk.writer(keep="some")


def test_a_stream_sees_every_version_where_all_are_kept(keyed: Desk) -> None:
    with keyed.writer(keep="all") as writer:
        writer.write(table([(1, "a"), (1, "b")]))
        writer.delete(keys(1))
        writer.upsert(table([(1, "c"), (2, "d")]))
    assert state(keyed, keyed.txlogs()) == {1: "c", 2: "d"}
    found = [(row["id"], row["op"], row["value"]) for row in streamed(keyed, keyed.txlogs())]
    assert [item for item in found if item[0] == 1] == [(1, "I", "a"), (1, "I", "b"), (1, "D", None), (1, "U", "c")]


def test_too_many_versions_of_a_key_are_refused_before_any_is_taken(
    keyed: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "STEP_ROWS", 4)
    monkeypatch.setattr(steps, "ORDER_BITS", 3)
    with keyed.writer(keep="all") as writer:
        for number in range(2):
            writer.upsert(table([(1, f"v{number}-{count}") for count in range(4)]))
        with pytest.raises(NotPossible, match="versions of one key"):
            writer.upsert(table([(1, "late")]))
        assert writer.due() and writer.unpublished_rows == 8
        writer.publish()
        writer.upsert(table([(1, "next")]))
    assert state(keyed, keyed.txlogs()) == {1: "next"}


def test_a_new_run_comes_after_every_earlier_one_though_the_clock_went_back(keyed: Desk) -> None:
    for number in range(3):
        with keyed.writer() as writer:
            for count in range(3):
                writer.upsert(table([(1, f"{number}{count}")]))
                writer.publish()
        keyed.clock.move(hours=-1)
    names = [txlog.name for txlog in keyed.txlogs()]
    assert [name.sequence for name in names] == [1, 2, 3] * 3
    found = [row["value"] for row in streamed(keyed, keyed.txlogs())]
    assert found == [f"{number}{count}" for number in range(3) for count in range(3)]


def test_a_new_run_comes_after_a_rejected_one_and_after_the_marks(keyed: Desk) -> None:
    from bookkeeper.contract.marks import Marks
    from bookkeeper.contract.marks_json import MarksCopy
    from bookkeeper.errors import PositionTaken

    with keyed.writer() as writer:
        writer.upsert(table([(1, "a")]))
        name = writer.publish()
    assert name is not None
    keyed.folder.reject(name, PositionTaken(), keyed.clock())
    ahead = int((START + timedelta(days=1)).timestamp() * 1000)
    in_marks = TxlogName("w1", new_incarnation(ahead, bytes(10)), 500)
    keyed.clock.move(hours=-1)
    after_rejected = keyed.writer().incarnation
    assert started_ms(after_rejected) == started_ms(name.incarnation) + 2
    marks = Marks("f").advanced([in_marks.at(1)], {}, 1).discarded(in_marks, (), 1)
    keyed.folder.publish_marks(MarksCopy(keyed.folder.card().table_uuid, 1, marks))
    assert started_ms(keyed.writer().incarnation) == ahead + 501
    assert started_ms(keyed.writer("other").incarnation) == int(keyed.clock().timestamp() * 1000)
    keyed.folder.publish_marks(MarksCopy(keyed.folder.card().table_uuid, 2, Marks("f", pruned_before_ms=ahead)))
    assert started_ms(keyed.writer().incarnation) == ahead, "what was pruned started before"


def test_a_run_that_says_it_started_after_2109_is_named_and_no_run_comes_after_it(keyed: Desk) -> None:
    from bookkeeper.contract.marks import Marks
    from bookkeeper.contract.marks_json import MarksCopy

    marks = Marks("f").advanced([TxlogName("w1", new_incarnation(2**47, bytes(10)), 1)], {}, 0)
    keyed.folder.publish_marks(MarksCopy(keyed.folder.card().table_uuid, 1, marks))
    with pytest.raises(NotPossible, match="year 6429"):
        keyed.writer()
    keyed.writer("w2")


def test_a_pending_txlog_of_such_a_run_is_refused_and_stops_no_run(keyed: Desk) -> None:
    name = TxlogName("w1", new_incarnation(2**47, bytes(10)), 1)
    keyed.folder.store.create(f"pending/{name}", b"anything")
    assert started_ms(keyed.writer().incarnation) == keyed.clock().timestamp() * 1000


def test_numbers_of_the_order_column_are_start_plus_sequence_and_a_count(keyed: Desk) -> None:
    incarnation = new_incarnation(1_795_262_400_000, bytes(10))
    assert first_order(incarnation, 7) == (1_795_262_400_000 + 7) * 2**ORDER_BITS
    assert first_order(new_incarnation(2**42 - 2, bytes(10)), 1) + 2**ORDER_BITS - 1 == 2**63 - 1
    with pytest.raises(NotPossible):
        first_order(new_incarnation(2**42 - 2, bytes(10)), 2)


def test_delete_and_shadow_files_are_written_again_at_half_the_orphan_age(keyed: Desk) -> None:
    keyed_card(keyed, orphan_age_ms=3_600_000)
    with keyed.writer() as writer:
        writer.upsert(table([(1, "a")]))
        writer.delete(keys(2))
        writer.roll()
        keyed.clock.move(minutes=40)
        writer.publish()
    txlog = only(keyed.txlogs())
    endings = [file.path.rpartition("-0000")[2] for file in (*txlog.files, only(deletes_of(keyed)).file)]
    assert endings == ["4.parquet", "5.parquet", "6-deletes.parquet"]
    assert (txlog.numbers, txlog.deletes.numbers) == ((0, 1), (1,))
    assert state(keyed, [txlog]) == {1: "a"}


ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "write", "change"]), st.lists(st.integers(0, 5), min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 5), min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["roll", "publish", "restart"]), st.just([])),
    ),
    max_size=25,
)
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "global deletes": {"spec": BY_VALUE},
    "bound deletes": {"spec": BY_KEY, "deletes": 1},
    "without op": {"columns": {"order-field-id": 4}},
}


@pytest.mark.parametrize("bound", [2**20, 3])
@pytest.mark.parametrize("keep", ["last", "all"])
@pytest.mark.parametrize("shape", [*SHAPES])
@settings(max_examples=15, deadline=None)
@given(acts=ACTS)
def test_any_operations_with_any_ends_of_steps_leave_what_a_dict_replayed_in_order_holds(
    shape: str, keep: str, bound: int, acts: list[tuple[str, list[int]]]
) -> None:
    if shape == "without op" and keep == "all":
        return
    desk = Desk(f"memory://{uuid.uuid4()}")
    keyed_card(desk, **SHAPES[shape])
    model = Replay(desk, keep, collisions=bound > 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "STEP_ROWS", bound)
        for number, (act, ids) in enumerate(acts):
            model.do(act, ids, number)
        model.writer.publish()
    txlogs = desk.txlogs()
    assert state(desk, txlogs) == model.rows
    if shape != "without op":
        found = streamed(desk, txlogs)
        assert merged(found) == model.rows
        if keep == "all":
            for key in range(6):
                assert [(row["op"], row["value"]) for row in found if row["id"] == key] == model.log.get(key, [])


class Replay:
    """The same operations on a dict; inserts only of keys that are new or, with `collisions`, touched in this step."""

    def __init__(self, desk: Desk, keep: str, collisions: bool) -> None:
        self.desk, self.keep, self.collisions = desk, keep, collisions
        self.writer: Writer = desk.writer(keep=keep)
        self.rows: dict[int, str | None] = {}
        self.log: dict[int, list[tuple[str, str | None]]] = {}
        self.in_step: set[int] = set()

    def do(self, act: str, ids: list[int], number: int) -> None:
        if act == "change":
            self._change(ids, number)
            return
        if act in ("upsert", "write"):
            if act == "write" and not self._may_insert(ids):
                act = "upsert"
            given = [(key, f"{'abc'[(number + at) % 3]}") for at, key in enumerate(ids)]
            getattr(self.writer, act)(table(given))
            for key, value in given:
                self._did(key, act[0].replace("w", "i").upper(), value)
        elif act == "delete":
            self.writer.delete(keys(*ids))
            for key in ids:
                self._did(key, "D", None)
        else:
            self.in_step = set()
            self._end(act)

    def _change(self, ids: list[int], number: int) -> None:
        deleted = [(number + at) % 2 == 1 for at in range(len(ids))]
        self.writer.change(table([(key, f"{number}") for key in ids]), pa.array(deleted))
        for key, gone in zip(ids, deleted, strict=True):
            self._did(key, "D" if gone else "U", None if gone else f"{number}")

    def _may_insert(self, ids: list[int]) -> bool:
        if not self.collisions:
            return len(set(ids)) == len(ids) and not self.rows.keys() & set(ids)
        return all(key not in self.rows or key in self.in_step for key in ids)

    def _did(self, key: int, op: str, value: str | None) -> None:
        self.in_step.add(key)
        self.log.setdefault(key, []).append((op, value))
        self.rows.pop(key, None)
        if op != "D":
            self.rows[key] = value

    def _end(self, act: str) -> None:
        if act == "roll":
            self.writer.roll()
            return
        self.writer.publish()
        if act == "restart":
            self.desk.clock.move(seconds=-5)
            self.writer = self.desk.writer(keep=self.keep)


def test_the_example_in_the_docs_runs_as_it_stands(local: Desk) -> None:
    keyed_card(local)
    block, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "upserts.md").read_text("utf-8"), re.DOTALL)
    exec(block, {"folder": f"{local.root}/_bookkeeper"})
    assert state(local, local.txlogs()) == {2: "changed", 3: "new"}
