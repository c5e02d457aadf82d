"""
What a bookkeeper and its process that plans folds tell each other: a job, and an answer to it, each a line of JSON.

An answer is data from another process, which has read files that others wrote. It is checked like anything read: its
size, its types, and that it plans what was asked for.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from bookkeeper.config.settings import Catalog
from bookkeeper.contract.delete_scope import DeleteFile
from bookkeeper.contract.rewrite import file_key
from bookkeeper.folds.budget import Budget, Computed
from bookkeeper.format.entries import ADDED, EQUALITY_DELETES, POSITION_DELETES, Entry
from bookkeeper.format.json_text import loads
from bookkeeper.ledger.fold_plan import FoldedData, FoldPlan

#: of a job: more than any catalog's properties
MOST_JOB_BYTES = 2**20
#: of an answer: it names each data file that a folded delete may apply to, some 3 million here
MOST_ANSWER_BYTES = 512 * 2**20
_FORM = ConfigDict(strict=True, ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


@dataclass(frozen=True, slots=True)
class Job:
    """A fold to be planned: of the head that the catalog shows now."""

    __pydantic_config__ = _FORM
    catalog: Catalog
    identifier: str
    #: the id of the txlog folder, as the table's marks have it
    folder: str
    now: datetime
    random: bytes
    budget: Budget


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no plan; `expected` is False for a defect of ours, whose text is the traceback."""

    text: str
    hint: str = ""
    expected: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the job with this `random`."""

    __pydantic_config__ = _FORM
    random: bytes
    found: Computed | Failed


_JOB, _ANSWER = TypeAdapter(Job), TypeAdapter(Answer)


def job_line(job: Job) -> bytes:
    """
    The job as a line.
    """
    return _JOB.dump_json(job) + b"\n"


def read_job(line: bytes) -> Job:
    """
    The job of a line; raises ValueError.
    """
    return _JOB.validate_json(line)


def answer_line(job: Job, found: Computed | Failed) -> bytes:
    """
    The answer to a job as a line.
    """
    return _ANSWER.dump_json(Answer(job.random, _changed(found, _packed, _scope_packed))) + b"\n"


def read_answer(line: bytes, job: Job, data_path: str) -> Computed | Failed:
    """
    The answer in a line; raises ValueError unless it answers this job, with new files below `data_path`.
    """
    answer = _ANSWER.validate_json(line)
    if answer.random != job.random:
        raise ValueError("it answers another job")
    found = _changed(answer.found, _unpacked, _scope_unpacked)
    if isinstance(found, Computed) and found.plan is not None:
        _check(found.plan, job, data_path)
    return found


def _check(plan: FoldPlan, job: Job, data_path: str) -> None:
    """Raises ValueError for what no plan of this job has: the rules of a fold's commit rest on it."""
    if plan.begun != job.now:
        raise ValueError("its plan was begun at another time")
    if not plan.folded or any(item.content != EQUALITY_DELETES for item in plan.folded):
        raise ValueError("it folds what is no equality delete file")
    for key, item in plan.files.items():
        if any(file.content != POSITION_DELETES or file.scope != key for file in item.predecessors):
            raise ValueError(f"it takes out a delete file that is not for {key[:300]} alone")
        if item.positions is not None and not _is_new(item.positions, key, data_path):
            raise ValueError(f"the position delete file for {key[:300]} is none of a fold")


def _is_new(entry: Entry, key: str, data_path: str) -> bool:
    inherited = entry.snapshot_id is entry.sequence_number is entry.file_sequence_number is None
    is_for = entry.referenced_data_file is not None and file_key(entry.referenced_data_file) == key
    kinds = entry.status == ADDED and entry.content == POSITION_DELETES and entry.equality_ids is None
    file = entry.data_file
    below = file_key(file.path).startswith(f"{file_key(data_path).rstrip('/')}/")
    return inherited and is_for and kinds and below and file.record_count > 0 and file.size_bytes > 0


def _changed(found: Computed | Failed, cell: Callable[[Any], Any], scope: Callable[[Any], Any]) -> Computed | Failed:
    """With the values of partitions changed, whose types JSON lacks: by `cell`, and by `scope` as parts of scopes."""
    if isinstance(found, Failed) or found.plan is None:
        return found

    def deletes(given: Sequence[DeleteFile]) -> tuple[DeleteFile, ...]:
        return tuple(
            item._replace(scope=(item.scope[0], scope(item.scope[1]))) if isinstance(item.scope, tuple) else item
            for item in given
        )

    def data(item: FoldedData) -> FoldedData:
        entry = item.positions
        if entry is not None:
            file = replace(entry.data_file, partition=tuple(map(cell, entry.data_file.partition)))
            entry = replace(entry, data_file=file)
        return replace(item, positions=entry, predecessors=deletes(item.predecessors))

    plan = found.plan
    files = {key: data(item) for key, item in plan.files.items()}
    return replace(found, plan=replace(plan, folded=deletes(plan.folded), files=files))


def _packed(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float):
        return {"float": value.hex()}
    return value


def _unpacked(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict) and [*value] == ["bytes"] and isinstance(value["bytes"], str):
        return base64.b64decode(value["bytes"], validate=True)
    if isinstance(value, dict) and [*value] == ["float"] and isinstance(value["float"], str):
        return float.fromhex(value["float"])
    raise ValueError("a partition has a value of no type that partitions have")


def _scope_packed(key: Any) -> str:
    return _ANY.dump_json([_packed(value) for value in key]).decode("utf-8")


def _scope_unpacked(key: Any) -> tuple[Any, ...]:
    cells = loads(key) if isinstance(key, str) else None
    if not isinstance(cells, list):
        raise ValueError("a scope is no partition")
    return tuple(map(_unpacked, cells))


_ANY = TypeAdapter(list[Any])
