"""Jobs and answers of the process that plans folds: they come over as they were, and what is no answer is refused."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.contract.delete_scope import FILE_PATH
from bookkeeper.folds.budget import OVER_BUDGET, Budget, Computed
from bookkeeper.folds.fold import plan_fold
from bookkeeper.folds.wire import Failed, Job, decode_answer, decode_job, encode_answer, encode_job
from bookkeeper.format import avro, manifest
from bookkeeper.format.entries import DATA, Entry
from tests.support.folds import data, keys, lake_of, positions, put
from tests.support.lake import Lake

RANDOM = bytes(range(10))


def rows(*ids: int, region: str = "eu") -> list[dict[str, Any]]:
    return [{"id": number, "name": "x", "region": region} for number in ids]


def job_of(lake: Lake, **budget: int) -> Job:
    given = lake.view().marks.folder, lake.clock.now, RANDOM, Budget(**budget)
    return Job(lake.catalog_settings, lake.settings.identifier, *given)


def planned(lake: Lake) -> Computed:
    return plan_fold(lake.book().ledger, lake.view(), lake.clock.now, RANDOM, Budget())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Deletes of a partition: of one file some rows, with positions of before, of one all, of one none."""
    lake = lake_of(tmp_path, "region")
    first = data(lake, rows(1, 2, 3), ("eu",))
    put(lake, first, data(lake, rows(4), ("eu",)), data(lake, rows(5), ("eu",)), data(lake, rows(6, 7), ("eu",)))
    put(lake, positions(lake, {first.path: [0]}, ("eu",)))
    put(lake, keys(lake, rows(2, 4, 6), partition=("eu",)))
    return lake


def test_a_job_comes_over_as_it_was(lake: Lake) -> None:
    job = job_of(lake, files=7)
    line = encode_job(job)
    assert decode_job(line) == job and line.count(b"\n") == 1


def test_answers_come_over_as_they_were(lake: Lake) -> None:
    found, job = planned(lake), job_of(lake)
    assert found.plan is not None and {item.positions is None for item in found.plan.files.values()} == {True, False}
    assert any(item.predecessors for item in found.plan.files.values())
    assert decode_answer(encode_answer(found, lake.view()), job) == found
    for other in (Computed(None, {"s3://b/x": OVER_BUDGET}, 3, 4), Failed("why", "do"), Failed("x", expected=False)):
        assert decode_answer(encode_answer(other), job) == other


@pytest.mark.parametrize("value", [None, True, 7, 2**100, "eu", b"\x00\xff", 1.5])
def test_partitions_of_any_value_come_over(lake: Lake, value: Any) -> None:
    found, job = planned(lake), job_of(lake)
    assert found.plan is not None
    (delete,) = found.plan.folded
    plan = replace(found.plan, folded=(delete._replace(scope=(3, (3, value))),))
    there = decode_answer(encode_answer(replace(found, plan=plan), lake.view()), job)
    assert isinstance(there, Computed) and there.plan == plan
    ((_, (_, came)),) = [item.scope for item in there.plan.folded]  # type: ignore[misc, union-attr]
    assert type(came) is type(value)


def changed(lake: Lake, change: Callable[[Any], Any]) -> Any:
    """The answer with something changed in it, as it is read; `change` returns another one, or None."""
    said = json.loads(encode_answer(planned(lake), lake.view()))
    return decode_answer(json.dumps(change(said) or said).encode(), job_of(lake))


def new_files(said: Any, spec_id: str) -> tuple[Any, manifest.Manifest]:
    """The manifest of new files: its header, and what is in it."""
    raw = b64decode(said["plan"]["new"][spec_id])
    return avro.decode(raw, 2**20)[0], manifest.decode(raw, 2**20)


def new(**change: Any) -> Callable[[Any], Any]:
    """Changes the first new file, or its record."""

    def apply(said: Any) -> None:
        (spec_id,) = said["plan"]["new"]
        meta, body = new_files(said, spec_id)
        first, *others = body.entries
        of_record = {key: value for key, value in change.items() if key in Entry.__slots__}  # type: ignore[attr-defined]
        file = replace(first.data_file, **{key: change[key] for key in change.keys() - of_record.keys()})
        entries = [replace(first, data_file=file, **of_record), *others]
        said["plan"]["new"][spec_id] = b64encode(manifest.encode(meta, entries)).decode()

    return apply


def a_file(**change: Any) -> Callable[[Any], Any]:
    def apply(said: Any) -> None:
        for item in said["plan"]["files"].values():
            for at, value in change.items():
                item[int(at[1:])] = value

    return apply


def put_in(**change: Any) -> Callable[[Any], Any]:
    return lambda said: said["plan"].update(change)


FOREIGN = {FILE_PATH: b"s3://b/other.parquet"}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "a list": lambda said: [1],
    "no counts": lambda said: {"left": {}},
    "a text as count": lambda said: said.update(read="3"),
    "a count below 0": lambda said: said.update(dead_rows=-1),
    "a number as reason": lambda said: said.update(left={"x": 1}),
    "a failure without a text": lambda said: {"failed": {}},
    "no plan": lambda said: said.update(plan=None),
    "no new files": put_in(new={}),
    "new files twice": lambda said: said["plan"]["new"].update({"9": said["plan"]["new"]["0"]}),
    "new files that are no base64": put_in(new={"0": "!"}),
    "new files that are no Avro": put_in(new={"0": "AAAA"}),
    "a new file for no data file": a_file(_3=False),
    "a new file for each": a_file(_3=True),
    "a sequence number beyond a long": a_file(_0=2**63),
    "a truth as sequence number": a_file(_0=True),
    "a number as manifest": a_file(_1=5),
    "predecessors of no form": a_file(_4=[["x"]]),
    "a folded file without a scope": put_in(folded=[["x", 3]]),
    "a folded file in a text": put_in(folded=[["x", 3, "y"]]),
    "a folded file in a list": put_in(folded=[["x", 3, [0, [0, []]]]]),
    "a scope that is no bytes": put_in(folded=[["x", 3, [0, [0, {"bytes": "zz"}]]]]),
    "examined without numbers": put_in(examined={"x": None}),
    "manifests that are numbers": put_in(manifests=[1]),
    "a new file of another fold": new(path="s3://b/00000000-0000-7000-8000-000000000000-00001-deletes.parquet"),
    "a new file that is data": new(content=DATA),
    "a new file that is ORC": new(file_format="ORC"),
    "a new file with a sequence number": new(sequence_number=1),
    "a new file that goes": new(status=2, snapshot_id=1, sequence_number=1, file_sequence_number=1),
    "a new file for another data file": new(referenced_data_file="s3://b/other.parquet"),
    "a new file for no data file alone": new(lower_bounds=FOREIGN, upper_bounds=FOREIGN),
    "a new file without bounds": new(lower_bounds={}, upper_bounds={}),
    "a new file without rows": new(record_count=0),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_answer_is_refused(lake: Lake, kind: str) -> None:
    assert changed(lake, lambda said: None) == planned(lake)
    with pytest.raises(ValueError, match=r"."):
        changed(lake, REFUSED[kind])


def test_no_new_file_is_named_twice(lake: Lake) -> None:
    (spec_id,) = json.loads(encode_answer(planned(lake), lake.view()))["plan"]["new"]

    def twice(said: Any) -> None:
        meta, body = new_files(said, spec_id)
        path = body.entries[0].data_file.path
        entries = [replace(item, data_file=replace(item.data_file, path=path)) for item in body.entries]
        assert len(entries) > 1
        said["plan"]["new"][spec_id] = b64encode(manifest.encode(meta, entries)).decode()

    with pytest.raises(ValueError, match="named twice"):
        changed(lake, twice)


def test_no_more_files_than_a_fold_may_read(lake: Lake) -> None:
    with pytest.raises(ValueError, match="the fold may read 1"):
        decode_answer(encode_answer(planned(lake), lake.view()), job_of(lake, files=1))


@pytest.mark.parametrize("data", [b"", b"\x80", b"{", b"[" * 10**5, b"1", b'"failed"', b"null", b"1" * 5000])
def test_garbage_is_refused(lake: Lake, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_answer(data, job_of(lake))
