"""Tasks of a keyed table: their steps come one behind the other, so each key has one row, whoever wrote it."""

import random
import uuid
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.contract.txlog import MOST_SPAN
from bookkeeper.errors import NotPossible
from tests.support.desk import Desk, only
from tests.support.upserts import BY_KEY, BY_VALUE, keyed_card, keys, merged, state, streamed, table
from writers import Task, TaskWriter, Writer
from writers.files import upsert_steps as steps
from writers.runtime import Runtime


@pytest.fixture
def keyed(desk: Desk) -> Desk:
    keyed_card(desk)
    return desk


def opened(desk: Desk, task: Task) -> TaskWriter:
    return task.open(clock=desk.clock, stores=desk.stores)


def upserted(desk: Desk, task: Task, *pairs: tuple[int, str], gone: tuple[int, ...] = ()) -> bytes:
    with opened(desk, task) as files:
        files.upsert(table(pairs))
        files.delete(keys(*gone))
    return files.result


def test_tasks_with_keys_of_their_own_make_one_txlog_of_upserts_and_deletes(keyed: Desk) -> None:
    with keyed.writer() as writer:
        writer.write(table([(number, "old") for number in range(6)]))
        writer.publish()
        task = writer.task()
        results = [
            upserted(keyed, task, (0, "a"), gone=(1,)),
            upserted(keyed, task, (2, "b"), (8, "b"), gone=(3,)),
            upserted(keyed, task),
        ]
        assert writer.take(results) == 5
        writer.publish()
    txlogs = keyed.txlogs()
    assert (txlogs[1].span, len(txlogs)) == (3, 2)
    assert state(keyed, txlogs) == merged(streamed(keyed, txlogs)) == {0: "a", 2: "b", 8: "b", 4: "old", 5: "old"}


def test_of_one_key_in_two_tasks_the_row_of_the_later_result_is_the_only_one(keyed: Desk) -> None:
    with keyed.writer() as writer:
        task = writer.task()
        one, two, three = (
            upserted(keyed, task, (1, "one"), (2, "one")),
            upserted(keyed, task, (1, "two")),
            upserted(keyed, task, gone=(2,)),
        )
        writer.take([two, one, three])
        writer.publish()
    assert state(keyed, keyed.txlogs()) == {1: "one"}


def test_what_the_writer_did_before_its_tasks_comes_before_and_what_it_does_behind_them_after(keyed: Desk) -> None:
    with keyed.writer() as writer:
        writer.upsert(table([(1, "before"), (2, "before")]))
        task = writer.task()
        writer.take([upserted(keyed, task, (1, "task"), (3, "task"))])
        writer.upsert(table([(3, "after")]))
        writer.write(table([(4, "after")]))
        assert writer.unpublished_rows == 6
        writer.publish()
    txlogs = keyed.txlogs()
    assert state(keyed, txlogs) == merged(streamed(keyed, txlogs)) == {1: "task", 2: "before", 3: "after", 4: "after"}


def test_tasks_that_only_insert_make_a_txlog_of_version_1(keyed: Desk) -> None:
    with keyed.writer() as writer:
        writer.write(table([(1, "mine")]))
        task, results = writer.task(), list[bytes]()
        for number in (2, 3):
            with opened(keyed, task) as files:
                files.write(table([(number, "t")]))
            results.append(files.result)
        writer.take(results)
        writer.write(table([(4, "mine")]))
        writer.publish()
    txlog = only(keyed.txlogs())
    assert (txlog.deletes, txlog.numbers, txlog.span) == (None, (), 1)
    assert state(keyed, [txlog]) == {1: "mine", 2: "t", 3: "t", 4: "mine"}


@pytest.mark.parametrize("keep", ["last", "all"])
@pytest.mark.parametrize("spec", [BY_KEY, BY_VALUE], ids=["by key", "by value"])
@pytest.mark.parametrize("seed", range(4))
def test_random_changes_in_tasks_of_many_steps_agree_with_a_dict_and_a_stream(
    seed: int, spec: Any, keep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "STEP_ROWS", 7)
    desk, chance, truth = Desk(f"memory://{uuid.uuid4()}"), random.Random(seed), dict[int, str | None]()
    keyed_card(desk, spec, deletes=1 if spec is BY_KEY else 0)
    with desk.writer(keep=keep) as writer:
        for turn in range(3):
            task, results = writer.task(), list[bytes]()
            for part in range(3):
                with opened(desk, task) as files:
                    for number in range(12):
                        pairs = [(3 * chance.randrange(4) + part, f"{turn}.{part}.{number}.{row}") for row in range(3)]
                        gone = [chance.random() < 0.3 for _ in pairs]
                        files.change(table(pairs), pa.array(gone))
                        for (key, text), out in zip(pairs, gone, strict=True):
                            truth.pop(key, None)
                            truth.update({} if out else {key: text})
                results.append(files.result)
            chance.shuffle(results)
            writer.take(results)
            writer.publish()
    txlogs = desk.txlogs()
    assert state(desk, txlogs) == merged(streamed(desk, txlogs)) == truth
    assert max(txlog.span for txlog in txlogs) > 4


def test_more_steps_than_a_txlog_has_are_refused_and_nothing_of_them_taken(keyed: Desk) -> None:
    with keyed.writer() as writer:
        task = writer.task()
        results = [upserted(keyed, task, (1, "a")), upserted(keyed, task, (2, "b"))]
        writer._files._number = MOST_SPAN - 2
        with pytest.raises(NotPossible, match="too many steps"):
            writer.take(results)
        assert writer.unpublished_rows == 0
        writer._files._number = 0
        writer.take(results)
    assert state(keyed, keyed.txlogs()) == {1: "a", 2: "b"}


def test_a_delete_spec_that_no_longer_fits_is_refused_in_the_task(keyed: Desk) -> None:
    with keyed.writer() as writer:
        keyed_card(keyed, BY_KEY, deletes=9)
        with opened(keyed, writer.task()) as files:
            files.write(table([(1, "a")]))
            with pytest.raises(NotPossible, match="deletes could miss rows"):
                files.delete(keys(1))
        writer.take([files.result])
    assert state(keyed, keyed.txlogs()) == {1: "a"}


def test_a_run_that_is_handed_over_upserts_behind_what_it_published_before(keyed: Desk) -> None:
    writer = keyed.writer()
    writer.upsert(table([(1, "old"), (2, "old")]))
    writer.publish()
    task = writer.task()
    handed = writer.hand_over()
    results = [upserted(keyed, task, (1, "new"), gone=(2,)), upserted(keyed, task, (3, "new"))]
    runtime = Runtime(keyed.stores, keyed.clock, keyed.clock.wait)
    with Writer.taking_over(f"{keyed.root}/_bookkeeper", handed, runtime) as second:
        assert second.take(results) == 3
        second.publish()
        second.upsert(table([(3, "last")]))
    txlogs = keyed.txlogs()
    assert [item.name.sequence for item in txlogs] == [1, 2, 3]
    assert state(keyed, txlogs) == merged(streamed(keyed, txlogs)) == {1: "new", 3: "last"}
