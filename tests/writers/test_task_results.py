"""A result comes from another process and may be anything: it is checked whole before anything is taken or deleted."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.contract import txlog
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Envelope, StepFile, Txlog, encode, encode_steps
from bookkeeper.errors import BookkeeperError, NotPossible
from bookkeeper.format import manifest
from bookkeeper.format.entries import DATA, DataFile, Entry
from bookkeeper.format.records import DELETED, EXISTING
from bookkeeper.stores.open import open_store
from tests.support.desk import BY_DAY, PLAIN, SCHEMA, Desk, rows
from tests.support.upserts import KEYED, keyed_card, keys, table
from writers import Task
from writers.tasks import results as checks

OTHER = "0190163d-8694-739b-aea5-966c26f8ad91"


def result_of(desk: Desk, task: Task) -> bytes:
    """Of two data files."""
    with task.open(stores=desk.stores) as files:
        files.write(rows("a"))
        files._files.finish(files._spec, task.sequence)
        files.write(rows("b", "c"))
    return files.result


def forged(
    task: Task, result: bytes, change: Callable[[DataFile], DataFile] = lambda file: file, **envelope: Any
) -> bytes:
    """The same with other files."""
    found = txlog.decode(task.txlog, result, 2**28)
    files = [change(file) for file in found.files]
    made = Envelope(task.txlog, found.table_uuid, found.created_ms, found.position)
    return encode(replace(made, **envelope), SCHEMA, BY_DAY, files)


def named(change: Callable[[str], str]) -> Callable[[DataFile], DataFile]:
    return lambda file: replace(file, path=change(file.path))


WRONG: dict[str, Callable[[DataFile], DataFile]] = {
    "another writer's": named(lambda path: path.replace("/w1-", "/w2-")),
    "another run's": lambda file: replace(
        file, path=file.path[: file.path.rindex("/")] + f"/w1-{OTHER}-0000000001-x.parquet"
    ),
    "another sequence's": named(lambda path: path.replace("-0000000001-", "-0000000002-")),
    "no prefix": named(lambda path: path[: path.rindex("/")] + "/x.parquet"),
    "another txlog's prefix behind its own": named(lambda path: path.replace("-t1-", f"-t1-{OTHER}-0000000001-")),
    "a file of the writer itself": named(lambda path: path[: path.index("-t1-")] + path[path.rindex("-") :]),
    "an earlier reservation's": named(lambda path: path.replace("-t1-", "-t9-")),
    "reservation zero": named(lambda path: path.replace("-t1-", "-t0-")),
    "outside of the table": named(lambda path: path.replace("/data/", "/elsewhere/")),
    "above the table": named(lambda path: path.replace("/data/", "/data/../")),
    "percent": named(lambda path: path.replace("/data/", "/data/%2e%2e/")),
    "a folder": named(lambda path: path + "/"),
    "no rows": lambda file: replace(file, record_count=0),
    "rows below none": lambda file: replace(file, record_count=-5),
    "no bytes": lambda file: replace(file, size_bytes=0),
    "another format": lambda file: replace(file, file_format="ORC"),
    "more rows than it says": lambda file: replace(file, record_count=file.record_count + 1),
    "an unknown column": lambda file: replace(file, value_counts={99: 1}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_forged_file_is_refused_and_neither_taken_nor_deleted(desk: Desk, wrong: str) -> None:
    with desk.writer() as writer:
        task = writer.task()
        good, odd = result_of(desk, task), forged(task, result_of(desk, task), WRONG[wrong])
        with pytest.raises(NotPossible, match="result 1: ") as caught:
            writer.take([good, odd])
        assert "Leave this result out" in caught.value.hint
        assert writer.unpublished_rows == 0
        assert len(stored(desk)) == 4
        writer.take([good])
    assert desk.keys() == ["a", "b", "c"]


def test_a_forged_result_deletes_no_file_of_the_writer_itself(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("mine"))
        task = writer.task()
        (mine,) = stored(desk)
        with task.open(stores=desk.stores) as files:
            files.write(rows("one"))
        for name in (mine, mine.replace(mine.rpartition("/")[2], "t1-0123456789abcdef-00001.parquet")):
            other = forged(task, files.result, lambda file, name=name: replace(file, path=f"{desk.root}/data/{name}"))
            for act in (writer.discard, writer.take):
                with pytest.raises(NotPossible, match="result 0"):
                    act([other])
        outside = forged(task, result_of(desk, task), named(lambda path: path.replace("/data/", "/_bookkeeper/")))
        with pytest.raises(NotPossible):
            writer.discard([outside])
        writer.discard()
    assert desk.keys() == ["mine"]


def stored(desk: Desk) -> list[str]:
    return [item.key for item in open_store(f"{desk.root}/data").list("")]


@pytest.mark.parametrize("odd", [None, 7, "text", b"", b"Obj\x01", bytearray(b"x"), [b"x"], {"a": 1}])
def test_what_is_no_result_is_refused(desk: Desk, odd: Any) -> None:
    with desk.writer() as writer:
        task = writer.task()
        good = result_of(desk, task)
        for act in (writer.take, writer.discard):
            with pytest.raises(NotPossible, match="result 1: "):
                act([good, odd])
        writer.take([good])
    assert desk.keys() == ["a", "b", "c"]


def test_one_result_instead_of_a_list_is_refused(desk: Desk) -> None:
    with desk.writer() as writer:
        result = result_of(desk, writer.task())
        with pytest.raises(NotPossible, match="result 0: it is int"):
            writer.take(result)  # type: ignore[arg-type]
        writer.take([result])


def test_a_result_that_is_cut_or_changed_in_any_place_is_refused_or_names_the_same_rows(desk: Desk) -> None:
    """A changed bound or count of a column is not seen here: the bookkeeper checks those, of a txlog by anybody."""
    chance = random.Random(7)
    with desk.writer() as writer:
        task = writer.task()
        result = result_of(desk, task)
        spec = writer._spec
        whole = checks.decode(task.txlog, spec, 1, result)
        shape = [(item.file.path, item.file.record_count) for item in whole.files.data]
        for end in [*range(0, len(result), 97), len(result) - 1]:
            with pytest.raises(BookkeeperError):
                checks.decode(task.txlog, spec, 1, result[:end])
        for _ in range(3000):
            at = chance.randrange(len(result))
            odd = result[:at] + bytes([result[at] ^ 1 << chance.randrange(8)]) + result[at + 1 :]
            try:
                found = checks.decode(task.txlog, spec, 1, odd)
            except BookkeeperError:
                continue
            paths = [item.file.path for item in found.files.data]
            assert all(f"{task.txlog.incarnation}-0000000001-t1-" in path for path in paths)
            assert sum(item.file.record_count for item in found.files.data) == sum(count for _, count in shape)
        writer.take([result])
    assert desk.keys() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "envelope",
    [
        {"table_uuid": OTHER},
        {"name": TxlogName("w1", OTHER, 1)},
        {"position": None},
        {"position": b"0 2"},
        {"position": b"0 4"},
        {"position": b"9999999 3"},
        {"position": b"-1 3"},
        {"position": b"0 3 "},
    ],
    ids=str,
)
def test_a_result_of_another_table_or_run_or_count_is_refused(desk: Desk, envelope: dict[str, Any]) -> None:
    with desk.writer() as writer:
        task = writer.task()
        odd = forged(task, result_of(desk, task), **envelope)
        with pytest.raises(NotPossible, match="result 0"):
            writer.take([odd])
        writer.discard()
    assert desk.txlogs() == []


ODD_ENTRIES: list[dict[str, Any]] = [
    {"status": EXISTING},
    {"status": DELETED},
    {"content": 2},
    {"snapshot_id": 7},
    {"sequence_number": 7},
    {"file_sequence_number": 7},
    {"referenced_data_file": "x"},
    {"equality_ids": (1,)},
]


@pytest.mark.parametrize("entry", ODD_ENTRIES, ids=str)
def test_an_entry_that_is_no_new_data_file_is_refused(desk: Desk, entry: dict[str, Any]) -> None:
    with desk.writer() as writer:
        task = writer.task()
        found = txlog.decode(task.txlog, result_of(desk, task), 2**28)
        made = Envelope(task.txlog, found.table_uuid, found.created_ms, found.position)
        meta = txlog._meta(made, 1, SCHEMA, BY_DAY, len(found.files))
        given: dict[str, Any] = {
            "status": 1,
            "snapshot_id": None,
            "sequence_number": None,
            "file_sequence_number": None,
            "content": DATA,
            "equality_ids": None,
            "referenced_data_file": None,
        }
        odd = manifest.encode(meta, [Entry(**{**given, **entry}, data_file=file) for file in found.files])
        with pytest.raises(NotPossible, match="result 0"):
            writer.take([odd])
        writer.discard()


def test_a_result_by_another_partition_spec_is_refused(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        found = txlog.decode(task.txlog, result_of(desk, task), 2**28)
        made = Envelope(task.txlog, found.table_uuid, found.created_ms, found.position)
        odd = encode(made, SCHEMA, PLAIN, [replace(file, partition=()) for file in found.files])
        with pytest.raises(NotPossible, match="result 0: its partition tuples"):
            writer.take([odd])
        other = SCHEMA.model_copy(update={"schema_id": 5})
        with pytest.raises(NotPossible, match="result 0: it has schema 5"):
            writer.take([encode(made, other, BY_DAY, found.files)])
        writer.discard()


def test_deletes_for_an_append_only_table_and_by_other_keys_are_refused(desk: Desk) -> None:
    keyed_card(desk)
    with desk.writer() as writer:
        task = writer.task()
        with task.open(stores=desk.stores) as files:
            files.upsert(table([(1, "a")]))
            files.delete(keys(2))
        found = txlog.decode(task.txlog, files.result, 2**28)
        for wrong in (
            steps(found, key_ids=(2,)),
            steps(found, key_ids=(1, 2)),
            steps(found, deletes=lambda path: path.replace("-t1-", "-")),
        ):
            with pytest.raises(NotPossible, match="result 0"):
                writer.take([wrong])
        assert writer.take([steps(found)]) == 2
        writer.publish()
    with desk.writer("w2") as writer:
        desk.set_card(schema=KEYED, spec=PLAIN)
        plain = desk.writer("w3")
        task = replace(plain.task(), card=task.card)
        with task.open(stores=desk.stores) as files:
            files.upsert(table([(1, "a")]))
        with pytest.raises(NotPossible, match="result 0: it deletes rows by key"):
            plain.take([files.result])
        plain.close()


def steps(found: Txlog, key_ids: tuple[int, ...] = (1,), deletes: Callable[[str], str] = lambda path: path) -> bytes:
    """The same with deletes by these keys, of these files."""
    made = Envelope(found.name, found.table_uuid, found.created_ms, found.position)
    assert found.deletes is not None
    data = [StepFile(file, number) for file, number in zip(found.files, found.numbers, strict=True)]
    gone = [
        StepFile(replace(entry.data_file, path=deletes(entry.data_file.path)), number)
        for entry, number in zip(found.deletes.entries, found.deletes.numbers, strict=True)
    ]
    return encode_steps(made, KEYED, PLAIN, data, PLAIN, gone, key_ids, found.span)
