"""
What a bookkeeper and the process that plans its folds send each other, as JSON: a job, and its answer.

An answer is checked like anything that is read from outside: that process reads the files of strangers, and what breaks
it may answer anything. A plan names new files of this very fold only, by the fold's id. What a plan means for the table
is checked by its commit, on the table's head.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyiceberg.manifest import ManifestContent

from bookkeeper.config.settings import Catalog
from bookkeeper.contract.delete_scope import FILE_PATH, DeleteFile, Scope
from bookkeeper.contract.names import new_incarnation
from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.folds.budget import Budget, Computed
from bookkeeper.format import avro, json_text, manifest
from bookkeeper.format.entries import ADDED, EQUALITY_DELETES, POSITION_DELETES, Entry
from bookkeeper.format.records import LARGEST
from bookkeeper.ledger.fold_plan import FoldedData, FoldPlan
from bookkeeper.ledger.view import View
from bookkeeper.manifests.header import ManifestWriter

#: of an answer, which names each data file that was examined: room for three million
MOST_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class Job:
    """A fold to be planned: of the head that the catalog shows now."""

    catalog: Catalog
    identifier: str
    #: the id of the txlog folder, as the table's marks have it
    folder: str
    now: datetime
    #: 10 bytes
    random: bytes
    budget: Budget

    @property
    def fold_id(self) -> str:
        """What the names of all files of this fold begin with."""
        return new_incarnation(int(self.now.timestamp() * 1000), self.random)


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no plan; `expected` is False for a defect of ours, whose text is the traceback."""

    text: str
    hint: str = ""
    expected: bool = True


def encode_job(job: Job) -> bytes:
    """
    The job as one line.
    """
    found = asdict(job) | {"now": job.now.isoformat(), "random": job.random.hex()}
    return json.dumps(found).encode() + b"\n"


def decode_job(line: bytes) -> Job:
    """
    The job in a line; raises ValueError, LookupError or TypeError for what is none.
    """
    said = json.loads(line)
    now, random = datetime.fromisoformat(said["now"]), bytes.fromhex(said["random"])
    return Job(Catalog(**said["catalog"]), said["identifier"], said["folder"], now, random, Budget(**said["budget"]))


def encode_answer(found: Computed | Failed, view: View | None = None) -> bytes:
    """
    The answer; `view` is the head that was planned for.
    """
    if isinstance(found, Failed):
        return json.dumps({"failed": asdict(found)}).encode()
    about = {"left": dict(found.left), "read": found.read, "dead_rows": found.dead_rows}
    if found.plan is not None:
        assert view is not None
        about["plan"] = _plan_said(found.plan, view)
    return json.dumps(about).encode()


def decode_answer(data: bytes, job: Job) -> Computed | Failed:
    """
    The answer to a job; raises ValueError for what is none.
    """
    try:
        said = _object(json_text.loads(data))
        if "failed" in said:
            failed = _object(said["failed"])
            return Failed(_text(failed["text"]), _text(failed["hint"]), failed["expected"] is not False)
        left = {_text(key): _text(why) for key, why in _object(said["left"]).items()}
        plan = _plan(_object(said["plan"]), job) if "plan" in said else None
        return Computed(plan, left, _number(said["read"]), _number(said["dead_rows"]))
    except (TypeError, LookupError) as error:
        raise ValueError(f"not of the form of an answer: {error!r}") from error
    except (TxlogCorrupt, TxlogTooLarge) as error:
        raise ValueError(f"its new files: {error}") from error


def _plan_said(plan: FoldPlan, view: View) -> dict[str, Any]:
    new = dict[int, list[Entry]]()
    for item in plan.files.values():
        if item.positions is not None:
            new.setdefault(item.spec_id, []).append(item.positions)
    return {
        "uuid": plan.table_uuid,
        "folded": [[item.key, item.sequence_number, _scope_said(item.scope)] for item in plan.folded],
        "files": {key: _file_said(item) for key, item in plan.files.items()},
        "new": {str(spec_id): _manifest(view, spec_id, entries) for spec_id, entries in new.items()},
        "examined": dict(plan.examined),
        "manifests": sorted(plan.manifests),
    }


def _file_said(item: FoldedData) -> list[Any]:
    before = [[old.key, old.sequence_number] for old in item.predecessors]
    return [item.sequence_number, item.manifest, item.spec_id, item.positions is not None, before]


def _manifest(view: View, spec_id: int, entries: list[Entry]) -> str:
    """New files of one spec, in the order of the plan's data files: a manifest in base64."""
    schema = view.schema_for(spec_id)
    assert schema is not None  # `select` leaves what cannot be written
    header = ManifestWriter().header(schema, view.specs[spec_id], ManifestContent.DELETES)
    return b64encode(avro.encode(header.meta, header.encode_blocks(entries))).decode()


def _scope_said(scope: Scope) -> Any:
    """Of an equality delete file: null, or the spec and the partition's key, in which bytes are {"bytes": hex}."""
    assert scope is None or isinstance(scope, tuple)
    if scope is None:
        return None
    spec_id, key = scope
    assert isinstance(key, tuple)
    return [spec_id, [{"bytes": value.hex()} if isinstance(value, bytes) else value for value in key]]


def _plan(said: Mapping[str, Any], job: Job) -> FoldPlan:
    files, most = _object(said["files"]), job.budget.files
    if len(files) > most:
        raise ValueError(f"it changes {len(files)} data files, the fold may read {most}")
    new = {
        int(spec_id): iter(manifest.decode(b64decode(_text(raw), validate=True), MOST_BYTES, most).entries)
        for spec_id, raw in _object(said["new"]).items()
    }
    names = set[str]()
    folded = {key: _folded_data(key, item, new, job, names) for key, item in files.items()}
    if any(next(rest, None) is not None for rest in new.values()):
        raise ValueError("it has more new files than data files that have one")
    return FoldPlan(
        _text(said["uuid"]),
        job.now,
        tuple(_equality_delete(*item) for item in said["folded"]),
        folded,
        {key: _number(number) for key, number in _object(said["examined"]).items()},
        frozenset(map(_text, said["manifests"])),
    )


def _equality_delete(key: Any, number: Any, scope: Any) -> DeleteFile:
    found: Scope = None
    if scope is not None:
        spec_id, values = scope
        found = _number(spec_id), tuple(map(_partition_value, values))
    return DeleteFile(_text(key), EQUALITY_DELETES, _number(number), found)


def _partition_value(said: Any) -> Any:
    if isinstance(said, dict):
        return bytes.fromhex(said["bytes"])
    if isinstance(said, list):
        raise ValueError("a list is no value of a partition")
    return said


def _folded_data(key: str, said: Any, new: Mapping[int, Iterator[Entry]], job: Job, names: set[str]) -> FoldedData:
    number, listed, spec_id, has_positions, before = said
    positions = None
    if has_positions:
        positions = next(new.get(spec_id, iter(())), None)
        if positions is None:
            raise ValueError(f"{key[:300]} has no new file")
        _check_new(key, positions, job.fold_id, names)
    # Only what is for this data file alone is replaced, so that is its scope.
    old = tuple(DeleteFile(_text(name), POSITION_DELETES, _number(its), key) for name, its in before)
    return FoldedData(_number(number), _text(listed), _number(spec_id), positions, old)


def _check_new(key: str, entry: Entry, fold_id: str, names: set[str]) -> None:
    """Refuses what is not a position delete file of this fold, for this data file alone."""
    file, referenced = entry.data_file, entry.referenced_data_file or ""
    given = entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.equality_ids
    if given != (ADDED, None, None, None, None) or (entry.content, file.file_format) != (POSITION_DELETES, "PARQUET"):
        raise ValueError(f"{file.path[:300]} is no new position delete file")
    if not file.path.rpartition("/")[2].startswith(fold_id) or file.path in names:
        raise ValueError(f"{file.path[:300]} is no file of fold {fold_id}, or is named twice")
    bounds = {file.lower_bounds.get(FILE_PATH), file.upper_bounds.get(FILE_PATH)}
    if file_key(referenced) != key or bounds != {referenced.encode()}:
        raise ValueError(f"{file.path[:300]} is not for {key[:300]} alone")
    if file.record_count < 1 or file.size_bytes < 1:
        raise ValueError(f"{file.path[:300]} has no position")
    names.add(file.path)


def _object(said: Any) -> dict[str, Any]:
    if type(said) is not dict:
        raise ValueError(f"{str(said)[:40]!r} is no object")
    return said


def _text(said: Any) -> str:
    if type(said) is not str:
        raise ValueError(f"{str(said)[:40]!r} is no text")
    return said


def _number(said: Any) -> int:
    if type(said) is not int or not 0 <= said <= LARGEST:
        raise ValueError(f"{str(said)[:40]!r} is no number")
    return said
