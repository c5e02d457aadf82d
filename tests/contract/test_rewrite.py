"""The rewrite: read as it was written, rejected or held when it is anything else (docs/maintain/rewrite-format.md)."""

import hashlib
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.contract import rewrite as rewrite_format
from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.rewrite import FileVersion, ReplacedFile, Rewrite, decode, encode, file_key, key_of, parse_key
from bookkeeper.errors import BookkeeperError, NewerVersion, Reject, RewriteCorrupt, RewriteRejected
from bookkeeper.format import avro
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.entries import Entry
from tests.golden.contents import our_header, plain
from tests.support.rewrites import BASE, ID, NEW, REPLACED, event_file, rewrite
from tests.support.txlogs import MOST, NAME, SCHEMA, SPEC, own, txlog, with_header

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/rewrites"
DOC = (ROOT / "docs/maintain/rewrite-format.md").read_text("utf-8")
#: they never change; a new one is added here
SHA256 = {
    "by-day": "624982f3f4564195a8a5d0a471c1d0766f54fb7c5ef30d153076de3d516d9c3b",
    "java": "e79d8b16793a1e9aa23ac2848f66fe2670079a028802f55baba621bb781a2e6c",
}


def decoded(data: bytes, rewrite_id: str = ID, most: int = MOST) -> Rewrite:
    return decode(rewrite_id, data, most)


def with_entries(data: bytes, entries: list[Entry]) -> bytes:
    """Other entries under the same header."""
    meta = {**avro.read_header(data).meta, "bookkeeper.entries": str(len(entries)).encode()}
    return manifest_format.encode(meta, entries)


def entries_of(data: bytes) -> list[Entry]:
    return list(manifest_format.decode(data, MOST).entries)


# what it says


def test_a_rewrite_is_read_as_it_was_written() -> None:
    found = decoded(rewrite())
    assert (found.id, found.base, found.schema_id, found.spec_id) == (ID, BASE, 0, 0)
    assert (found.partition, found.partition_values) == (((1000, "int"),), (20_778,))
    assert [row.path for row in found.added] == [file.path for file in NEW]
    assert found.replaced == {
        REPLACED[0].file.path: FileVersion(4, 4),
        REPLACED[1].file.path: FileVersion(5, 9),
    }
    assert found.applied_deletes == set(BASE.applied_deletes)
    assert [len(rows) for _, rows in found.added_blocks] == [2]


def test_its_new_files_get_the_largest_sequence_number_that_they_replace() -> None:
    assert decoded(rewrite()).sequence_number == 5
    assert decoded(rewrite(replaced=REPLACED[::-1])).sequence_number == 5


def test_files_are_the_same_file_in_every_spelling() -> None:
    old = [replace(event_file("a"), path=path) for path in ("file:/lake/a", "file:///lake/a")]
    with pytest.raises(RewriteCorrupt, match="named twice"):
        decoded(rewrite(replaced=[ReplacedFile(file, 1, 1) for file in old]))
    assert file_key("s3a://lake/x") == file_key("s3://lake/x")
    assert file_key("s3://lake/day=2026%3A/x") == "s3://lake/day=2026%3A/x", "it is compared, never opened"


def test_a_rewrite_may_leave_no_row_and_so_no_new_file() -> None:
    assert decoded(rewrite(new=[])).added == ()


def test_a_key_of_the_folder_names_one_rewrite() -> None:
    assert parse_key(key_of(ID)) == ID
    for key in ("rewrites/x.avro", f"rewrites/{ID}", f"rewrites/{ID.upper()}.avro", f"rewrites/{ID}.avro.tmp", ""):
        with pytest.raises(RewriteCorrupt):
            parse_key(key)
    with pytest.raises(ValueError, match="is not a UUID"):
        rewrite(rewrite_id="../pending/x")


def test_a_rewrite_is_the_same_bytes_every_time() -> None:
    assert rewrite() == rewrite()


def test_a_txlog_is_no_rewrite_and_a_rewrite_is_no_txlog() -> None:
    with pytest.raises(RewriteCorrupt):
        decoded(txlog())
    with pytest.raises(Reject):
        txlog_format.decode(NAME, rewrite(), MOST)


# golden files


@pytest.mark.parametrize("key", SHA256)
def test_a_golden_rewrite_is_read_as_it_always_was(key: str) -> None:
    data = (GOLDEN / f"{key}.avro").read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256[key], "a golden file is never made again"
    assert described(decoded(data), data) == json.loads((GOLDEN / f"{key}.json").read_text("utf-8"))


def test_what_is_written_today_is_what_was_written_then() -> None:
    then = (GOLDEN / "by-day.avro").read_bytes()
    assert avro.decode(rewrite(), MOST) == avro.decode(then, MOST)


def test_every_golden_rewrite_is_known() -> None:
    assert {path.stem for path in GOLDEN.glob("*.avro")} == set(SHA256)


def described(found: Rewrite, data: bytes) -> dict[str, Any]:
    """A rewrite as JSON data."""
    return {
        "id": found.id,
        "header": our_header(data),
        "partition": plain(found.partition),
        "sequence number": found.sequence_number,
        "added": [row.path for row in found.added],
        "replaced": {path: list(version) for path, version in found.replaced.items()},
        "applied deletes": sorted(found.applied_deletes),
        "entries": [plain(asdict(entry)) for entry in found.body.entries],
    }


# the header


@pytest.mark.parametrize("key", sorted(rewrite_format._KEYS))
def test_a_header_that_lacks_a_key_is_rejected_by_its_name(key: str) -> None:
    with pytest.raises(RewriteCorrupt, match=f"the header lacks bookkeeper.{key}"):
        decoded(with_header(rewrite(), {f"bookkeeper.{key}": None}))


def test_a_key_of_ours_that_is_not_known_is_rejected() -> None:
    with pytest.raises(RewriteCorrupt, match=r"unknown header key bookkeeper\.sorted"):
        decoded(with_header(rewrite(), own(sorted=b"1")))
    assert decoded(with_header(rewrite(), {"mine": b"1"})).id == ID


@pytest.mark.parametrize("version", [b"2", b"10"])
def test_a_newer_version_is_held_whatever_else_it_changed(version: bytes) -> None:
    with pytest.raises(NewerVersion, match="knows up to 1"):
        decoded(with_header(rewrite(), {**own(version=version, entries=None), "content": b"deletes"}))


@pytest.mark.parametrize(
    "changes",
    [
        own(version=b"0"),
        own(version=b"x"),
        own(rewrite_id=b"01a1fdf4-2b80-7001-8203-0405060708ab"),
        own(base_snapshot_id=b"9223372036854775808"),
        own(base_snapshot_id=b"-1"),
        own(base_sequence_number=b""),
        own(base_sequence_number=b"4"),
        own(entries=b"3"),
        own(entries=b"5"),
        own(applied_deletes=b""),
        own(applied_deletes=b"{}"),
        own(applied_deletes=b"[1]"),
        own(applied_deletes=b"[" * 100_000),
        own(applied_deletes=json.dumps(["x"] * 10_001).encode()),
        {"format-version": b"1"},
        {"content": b"deletes"},
        {"schema-id": b"x"},
        {"partition-spec-id": None},
        {"avro.schema": b"{}"},
    ],
)
def test_a_header_that_does_not_fit_is_rejected(changes: dict[str, bytes | None]) -> None:
    with pytest.raises(RewriteCorrupt):
        decoded(with_header(rewrite(), changes))


# the entries


def changed(index: int, **changes: Any) -> bytes:
    found = entries_of(rewrite())
    found[index] = replace(found[index], **changes)
    return with_entries(rewrite(), found)


def test_the_unchanged_entries_are_good() -> None:
    assert described(decoded(changed(0)), rewrite()) == described(decoded(rewrite()), rewrite())


@pytest.mark.parametrize(
    "changes",
    [
        {"status": 0},
        {"status": 2},
        {"snapshot_id": 7},
        {"sequence_number": 5},
        {"file_sequence_number": 5},
        {"content": 1},
        {"content": 2},
        {"equality_ids": (1,)},
        {"referenced_data_file": "s3://lake/x"},
    ],
)
def test_a_new_file_is_an_added_data_file_that_inherits_all(changes: dict[str, Any]) -> None:
    with pytest.raises(RewriteCorrupt):
        decoded(changed(0, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"status": 0},
        {"status": 1},
        {"snapshot_id": 7},
        {"sequence_number": None},
        {"file_sequence_number": None},
        {"sequence_number": -1},
        {"file_sequence_number": -1},
        {"sequence_number": 13},
        {"content": 1},
    ],
)
def test_a_replaced_file_is_a_deleted_data_file_with_both_its_numbers(changes: dict[str, Any]) -> None:
    with pytest.raises(RewriteCorrupt):
        decoded(changed(3, **changes))


def test_a_rewrite_that_replaces_nothing_would_only_add_rows() -> None:
    with pytest.raises(RewriteCorrupt, match="replaces no file"):
        decoded(rewrite(replaced=[]))


@pytest.mark.parametrize("index", [1, 3])
def test_files_of_two_partitions_are_rejected(index: int) -> None:
    other = replace(entries_of(rewrite())[index].data_file, partition=(20_779,))
    with pytest.raises(RewriteCorrupt, match="more than one partition"):
        decoded(changed(index, data_file=other))


def test_a_new_file_that_has_not_the_id_in_its_name_is_rejected() -> None:
    # It may be one that a txlog or another rewrite names: its rows would be in the table twice.
    for name in ("other", f"{ID}/other"):
        with pytest.raises(RewriteCorrupt, match="has not the rewrite's id in its name"):
            decoded(rewrite(new=[event_file(name)]))


def test_a_file_that_is_named_twice_is_rejected() -> None:
    both = event_file(f"{ID}-1")
    for new, replaced in (([both, both], REPLACED), ([both], [ReplacedFile(both, 1, 1)])):
        with pytest.raises(RewriteCorrupt, match="named twice"):
            decoded(rewrite(new=new, replaced=replaced))


def test_a_rewrite_cut_at_any_byte_or_with_bytes_behind_is_rejected() -> None:
    data = rewrite()
    for end in range(len(data)):
        with pytest.raises(RewriteCorrupt):
            decoded(data[:end])
    with pytest.raises(RewriteCorrupt):
        decoded(data + b"\0")


def test_a_rewrite_cut_behind_a_block_is_rejected() -> None:
    many = [ReplacedFile(event_file(f"r{number}"), 1, 1) for number in range(2500)]
    data = rewrite(replaced=many)
    found = avro.decode(data, MOST)
    assert len(found.blocks) == 3
    with pytest.raises(RewriteCorrupt, match="announces 2502 entries, the file holds 1000"):
        decoded(avro.encode(found.meta, found.blocks[:1]))
    assert len(decoded(data).replaced) == 2500


def test_a_rewrite_larger_than_allowed_is_rejected() -> None:
    with pytest.raises(RewriteCorrupt, match="at most 100 are allowed"):
        decoded(rewrite(), most=100)
    bomb = avro.encode(avro.read_header(rewrite()).meta, [avro.Block(1, bytes(10**6))])
    with pytest.raises(RewriteCorrupt, match="once decompressed"):
        decoded(bomb, most=10**5)


# the documentation


def test_every_header_key_and_every_reason_to_reject_is_documented() -> None:
    said = set(re.findall(r"`bookkeeper\.([a-z-]+)`", DOC.partition("\n## The header\n")[2].partition("\n## ")[0]))
    assert said == rewrite_format._KEYS
    kinds = {kind.__name__ for kind in RewriteRejected.__subclasses__()}
    assert kinds <= set(re.findall(r"`([A-Z]\w+)`", DOC))
    assert issubclass(RewriteCorrupt, BookkeeperError) and not issubclass(RewriteCorrupt, Reject)


def test_the_documentation_shows_the_java_that_wrote_the_golden_file() -> None:
    source = (GOLDEN / "WriteRewrite.java").read_text("utf-8")
    part = source.partition("// [docs]")[2].partition("\n")[2].partition("  // [end]")[0]
    assert "".join(line.removeprefix("  ") for line in part.splitlines(keepends=True)) in DOC


def test_the_python_of_the_documentation_writes_a_rewrite() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    given_names = {"card_schema": SCHEMA, "card_spec": SPEC, "new_files": NEW, "old": REPLACED, "base": BASE}
    space: dict[str, Any] = {**given_names, "rewrite_id": ID}
    exec(compile(code, "docs/maintain/rewrite-format.md", "exec"), space)
    assert decoded(space["data"]).id == ID
    assert space["data"] == encode(ID, BASE, SCHEMA, SPEC, NEW, REPLACED)
