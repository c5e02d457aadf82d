"""What the process that plans folds answers is checked: no answer makes a fold of anything that was not asked for."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bookkeeper.config.settings import Catalog
from bookkeeper.contract.delete_scope import DeleteFile
from bookkeeper.folds.budget import Budget, Computed
from bookkeeper.folds.messages import Answer, Failed, Job, answer_line, job_line, read_answer, read_job
from bookkeeper.format.entries import ADDED, DATA, EQUALITY_DELETES, POSITION_DELETES, DataFile, Entry
from bookkeeper.ledger.fold_plan import FoldedData, FoldPlan

DATA_PATH = "s3://lake/events/data"
KEY = "s3://lake/events/data/a.parquet"
NOW = datetime(2026, 1, 1, 0, 0, 0, 5, UTC)
JOB = Job(Catalog("lake", {"uri": "x"}), "demo.events", "f0", NOW, b"\xff\x00", Budget())


def entry(**changed: Any) -> Entry:
    partition = (b"\xff\x00", 7, None, "ü", True, 1.5, -0.0, math.inf)
    bounds = {2_147_483_546: b"\xff", 1: b""}
    file = DataFile(f"{DATA_PATH}/x-00001-deletes.parquet", "PARQUET", partition, 3, 9, {1: 2}, lower_bounds=bounds)
    of_file = {name: changed.pop(name) for name in [*changed] if name in DataFile.__slots__}
    made = Entry(ADDED, None, None, None, POSITION_DELETES, None, KEY, replace(file, **of_file))
    return replace(made, **changed)


def computed(positions: Entry | None = None, **changed: Any) -> Computed:
    folded = (
        DeleteFile("d1", EQUALITY_DELETES, 9, None),
        DeleteFile("d2", EQUALITY_DELETES, 8, (1, (1, b"\xfe", "NaN", 5, None))),
    )
    before = (DeleteFile("p1", POSITION_DELETES, 3, KEY),)
    files = {KEY: FoldedData(4, "m1", 1, positions or entry(), before), "whole": FoldedData(4, "m1", 1, None)}
    plan = FoldPlan("uuid", NOW, folded, files, {KEY: 4, "whole": 4}, frozenset({"m1", "m2"}))
    return Computed(replace(plan, **changed), {"d3": "it cannot be read: x"}, 2, 5)


def test_a_job_and_its_answers_come_over_as_they_are() -> None:
    assert read_job(job_line(JOB)) == JOB
    for found in (computed(), Computed(None, {}), Failed("no", "wait", False)):
        line = answer_line(JOB, found)
        assert line.count(b"\n") == 1 and line.endswith(b"\n")
        assert read_answer(line, JOB, DATA_PATH) == found
    (nan,) = read_nan()
    assert math.isnan(nan)


def read_nan() -> tuple[Any, ...]:
    found = read_answer(answer_line(JOB, computed(entry(partition=(math.nan,)))), JOB, DATA_PATH)
    assert isinstance(found, Computed) and found.plan is not None
    positions = found.plan.files[KEY].positions
    assert positions is not None
    return positions.data_file.partition


@pytest.mark.parametrize(
    "wrong",
    [
        {"begun": NOW + timedelta(minutes=10)},
        {"folded": ()},
        {"folded": (DeleteFile("d", POSITION_DELETES, 9, None),)},
        {"folded": (DeleteFile("d", DATA, 9, None),)},
        {"files": {KEY: FoldedData(4, "m", 1, None, (DeleteFile("p", POSITION_DELETES, 3, "another"),))}},
        {"files": {KEY: FoldedData(4, "m", 1, None, (DeleteFile("p", POSITION_DELETES, 3, None),))}},
        {"files": {KEY: FoldedData(4, "m", 1, None, (DeleteFile("p", EQUALITY_DELETES, 3, KEY),))}},
        {"files": {"another": FoldedData(4, "m", 1, entry())}},
        {"positions": entry(status=2)},
        {"positions": entry(content=DATA)},
        {"positions": entry(equality_ids=(1,))},
        {"positions": entry(sequence_number=1)},
        {"positions": entry(file_sequence_number=1)},
        {"positions": entry(snapshot_id=1)},
        {"positions": entry(referenced_data_file=None)},
        {"positions": entry(referenced_data_file="s3://lake/events/data/b.parquet")},
        {"positions": entry(path="s3://lake/other/data/x.parquet")},
        {"positions": entry(path="s3://lake/events/data-2/x.parquet")},
        {"positions": entry(record_count=0)},
        {"positions": entry(size_bytes=0)},
        {"positions": entry(partition=([1],))},
        {"positions": entry(partition=({"bytes": "no base64!"},))},
        {"positions": entry(partition=({"float": "x"},))},
    ],
    ids=str,
)
def test_a_plan_of_something_else_is_refused(wrong: dict[str, Any]) -> None:
    line = answer_line(JOB, computed(**wrong))
    with pytest.raises(ValueError, match=r"\w"):
        read_answer(line, JOB, DATA_PATH)


def changed(of: bytes, to: bytes) -> Callable[[bytes], bytes]:
    return lambda line: line.replace(of, to)


@pytest.mark.parametrize(
    "change",
    [
        changed(b'"sequence_number":4', b'"sequence_number":"4"'),
        changed(b'"sequence_number":4', b'"sequence_number":4.0'),
        changed(b'"spec_id":1', b'"spec_id":true'),
        changed(b'"spec_id":1,', b""),
        changed(b'"manifests":[', b'"manifests":[1,'),
        changed(b'["d1",2,9,null]', b'["d1",2,9,[1,"no list"]]'),
        changed(b'["d1",2,9,null]', b'["d1",2,9,[1,"{}"]]'),
        changed(b'["d1",2,9,null]', b'["d1",2,9,[1,"[[]]"]]'),
        changed(b'["d1",2,9,null]', b'["d1",2,9,[1,"' + b"[" * 100_000 + b'"]]'),
        changed(b'["d1",2,9,null]', b'["d1",2,9]'),
        lambda line: line[:-20],
        lambda line: b"\xff" + line,
        lambda line: b"",
        lambda line: b"[" * 10**6,
    ],
)
def test_an_answer_of_another_form_is_a_value_error(change: Callable[[bytes], bytes]) -> None:
    line = answer_line(JOB, computed())
    assert change(line) != line
    with pytest.raises(ValueError, match=r"\w"):
        read_answer(change(line), JOB, DATA_PATH)


def test_an_answer_to_another_job_is_refused() -> None:
    line = answer_line(replace(JOB, random=b"other"), computed())
    with pytest.raises(ValueError, match="another job"):
        read_answer(line, JOB, DATA_PATH)
    assert Answer(b"x", Failed("y")).random == b"x"
