"""The txlog: read as it was written, refused or held when it is anything else (docs/maintain/txlog-format.md)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.typedef import Record

from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import MOST_ENTRIES, PREFIX, Envelope, Txlog, decode, encode
from bookkeeper.errors import BookkeeperError, NameMismatch, NewerVersion, PathRefused, TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro
from bookkeeper.format.headers import Alike, Headers
from tests.support.txlogs import ENVELOPE, MOST, NAME, SCHEMA, SPEC, block_ends, data_file, own, txlog, with_header

positions = st.none() | st.binary(max_size=1024)


def decoded(data: bytes, name: TxlogName = NAME) -> Txlog:
    return decode(name, data, MOST)


@given(positions, positions, st.integers(0, 10**18 - 1), st.integers(1, 9_999_999_999), st.integers(0, 3))
def test_a_txlog_is_read_as_it_was_written(
    position: bytes | None, previous: bytes | None, created_ms: int, sequence: int, count: int
) -> None:
    envelope = Envelope(NAME.at(sequence), "a table's uuid", created_ms, position, previous)
    files = tuple(data_file(number) for number in range(count))
    found = decode(NAME.at(sequence), encode(envelope, SCHEMA, SPEC, files), MOST)
    assert (found.name, found.table_uuid, found.created_ms) == (NAME.at(sequence), "a table's uuid", created_ms)
    assert (found.position, found.previous_position) == (position, previous)
    assert (found.schema_id, found.spec_id, found.partition) == (0, 0, ((1000, "int"),))
    assert found.files == files
    assert (found.row_count, found.data_bytes) == (100 * count, sum(file.size_bytes for file in files))


words = st.sampled_from([b"", b"0", b"1", b"01", b"2", b"99", b"-1", b"x", b"null", b"deflate", b"data", b"9" * 40])
keys = st.sampled_from(["version", "writer", "sequence", "created-ms", "entries", "position", "table-uuid", "new"])
changed_headers = st.dictionaries(
    st.builds("bookkeeper.{}".format, keys) | st.sampled_from(["format-version", "content", "schema-id"]),
    words | st.none(),
    max_size=2,
)


@given(changed_headers, st.sampled_from(["null", "deflate"]), st.integers(0, 5000), st.integers(0, 255))
def test_a_txlog_whose_header_is_of_a_known_kind_is_read_or_refused_as_any_other(
    changes: dict[str, bytes | None], codec: str, at: int, byte: int
) -> None:
    found = avro.decode(with_header(txlog(2), changes), MOST)
    plain = avro.encode(found.meta, found.blocks, codec)
    spoiled = plain[: at % len(plain)] + bytes([byte]) + plain[at % len(plain) + 1 :]
    for data in (plain, spoiled, plain[: at % len(plain)]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(txlog_format, "_HEADERS", Headers(PREFIX, lambda meta, keys: None))
            apart = outcome(data)
        for _ in range(3):  # at the third time a kind is known
            assert outcome(data) == apart


def test_a_key_of_iceberg_behind_our_own_is_read_from_each_header() -> None:
    meta = {
        key: value for key, value in avro.read_header(txlog()).meta.items() if key not in ("schema-id", "avro.codec")
    }
    last = avro.encode({**meta, "schema-id": b"7"}, avro.decode(txlog(), MOST).blocks)
    assert [decoded(data).schema_id for data in (txlog(), last, last, last, last)] == [0, 7, 7, 7, 7]


def test_a_writers_txlogs_are_of_a_known_kind_from_the_third_on() -> None:
    headers = Headers(PREFIX, txlog_format._common)
    read = [headers.read(encode(replace(ENVELOPE, created_ms=n), SCHEMA, SPEC, [data_file(n)])) for n in range(4)]
    assert [isinstance(header, Alike) for header in read] == [False, False, True, True]


def test_a_schema_is_not_parsed_where_the_txlog_or_the_schema_is_too_large() -> None:
    meta = {key: value for key, value in avro.read_header(txlog()).meta.items() if key != "schema-id"}
    large = avro.encode({**meta, "schema": b"[" + b"[]," * 2**20 + b"[]]"}, avro.decode(txlog(), MOST).blocks)
    with pytest.raises(TxlogTooLarge):
        decode(NAME, large, 2**20)
    with pytest.raises(TxlogCorrupt, match="not looked through"):
        decoded(large)


def outcome(data: bytes) -> object:
    try:
        found = decoded(data)
    except BookkeeperError as error:
        return type(error), str(error)
    return {key: value for key, value in vars(found).items() if key not in ("body", "rows")}, found.files


def test_a_txlog_is_the_same_bytes_every_time() -> None:
    # A retry sends the same bytes, so that a put whose reply was lost can be recognised.
    assert txlog(3) == txlog(3)
    assert txlog(3) != txlog(4)


def test_a_table_without_partitions_has_empty_tuples() -> None:
    file = replace(data_file(0), partition=())
    found = decoded(encode(ENVELOPE, SCHEMA, UNPARTITIONED_PARTITION_SPEC, [file]))
    assert (found.partition, found.files) == ((), (file,))


def test_positions_are_any_bytes_and_an_empty_one_is_not_none() -> None:
    found = decoded(encode(replace(ENVELOPE, position=b"", previous_position=b"\0\xff"), SCHEMA, SPEC, [data_file(0)]))
    assert (found.position, found.previous_position) == (b"", b"\0\xff")


@pytest.mark.parametrize("key", ["position", "previous_position"])
def test_a_position_of_more_than_1024_bytes_is_refused_on_both_sides(key: str) -> None:
    with pytest.raises(ValueError, match="has 1025 bytes, at most 1024"):
        encode(replace(ENVELOPE, **{key: b"x" * 1025}), SCHEMA, SPEC, [])  # type: ignore[arg-type]
    with pytest.raises(TxlogCorrupt, match="longer than 1024 bytes"):
        decoded(with_header(txlog(), own(**{key: b"x" * 1025})))


# the header


def said(txlog: Txlog) -> tuple[Any, ...]:
    """
    All that a txlog says.
    """
    positions = (txlog.position, txlog.previous_position)
    ids = (txlog.schema_id, txlog.spec_id, txlog.partition)
    return (txlog.name, txlog.table_uuid, txlog.created_ms, *ids, *positions, txlog.entries)


def test_the_unchanged_header_is_good() -> None:
    assert said(decoded(with_header(txlog(), {}))) == said(decoded(txlog()))


@pytest.mark.parametrize("key", ["table_uuid", "writer", "incarnation", "sequence", "created_ms"])
def test_a_header_that_lacks_a_key_is_refused_by_its_name(key: str) -> None:
    with pytest.raises(TxlogCorrupt, match=f"the header lacks bookkeeper.{key.replace('_', '-')}"):
        decoded(with_header(txlog(), own(**{key: None})))


def test_a_manifest_that_is_no_txlog_is_refused() -> None:
    with pytest.raises(TxlogCorrupt, match=r"no bookkeeper\.version, so this is no txlog"):
        decoded(with_header(txlog(), own(version=None)))


@pytest.mark.parametrize("key", ["priority", "Version", "companion", ""])
def test_a_key_of_ours_that_is_not_known_is_refused(key: str) -> None:
    # Its writer meant something by it that would not happen.
    with pytest.raises(TxlogCorrupt, match=f"unknown header key bookkeeper.{key}"):
        decoded(with_header(txlog(), own(**{key: b"1"})))


def test_any_other_key_is_passed_over() -> None:
    assert said(decoded(with_header(txlog(), {"iceberg.schema": b"{}", "mine": b"\xff"}))) == said(decoded(txlog()))


@pytest.mark.parametrize("version", [b"5", b"10", b"000005"])
def test_a_newer_version_is_held_and_not_refused(version: bytes) -> None:
    with pytest.raises(NewerVersion, match="this bookkeeper knows up to 4"):
        decoded(with_header(txlog(), own(version=version)))


def test_a_newer_version_is_held_whatever_else_it_changed() -> None:
    newer = own(version=b"5", priority=b"high", writer=None, sequence=b"x")
    data = with_header(txlog(), {**newer, "avro.schema": b"{}", "format-version": b"3"})
    for other in (data, data[:-20], data + b"more", data.replace(b"deflate", b"zstdnew")):
        with pytest.raises(NewerVersion):
            decoded(other)
    with pytest.raises(NewerVersion):
        decode(NAME, data, most_bytes=10)


@pytest.mark.parametrize("version", [b"0", b"", b"1.0", b"-1", b"one", b"000002", b"9" * 30, "\u0661".encode()])
def test_a_version_that_is_none_is_refused(version: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(with_header(txlog(), own(version=version)))


@pytest.mark.parametrize(
    "name",
    [
        TxlogName("other", NAME.incarnation, NAME.sequence),
        TxlogName(NAME.writer, new_incarnation(1, bytes(10)), NAME.sequence),
        NAME.at(43),
    ],
)
def test_a_txlog_under_another_name_is_refused(name: TxlogName) -> None:
    with pytest.raises(NameMismatch, match="the header says ingest-7"):
        decoded(txlog(), name)


@pytest.mark.parametrize("key", ["sequence", "created_ms", "entries"])
@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"x", b"1" * 19, b" 1"])
def test_a_number_that_is_none_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(with_header(txlog(), own(**{key: value})))


@pytest.mark.parametrize(
    "changes",
    [
        {"format-version": b"1"},
        {"format-version": b"3"},
        {"format-version": None},
        {"content": b"deletes"},
        {"content": None},
        {"partition-spec-id": b"x"},
        {"partition-spec-id": None},
        {"schema-id": b"x"},
        {"schema-id": b""},
        {"schema-id": None, "schema": None},
        {"schema-id": None, "schema": b"{}"},
        {"schema-id": None, "schema": b"[" * 100_000},
        {"schema-id": None, "schema": b'{"schema-id": "0"}'},
        {"schema-id": None, "schema": b'{"schema-id": true}'},
    ],
)
def test_a_header_that_is_not_that_of_a_v2_data_manifest_is_refused(changes: dict[str, bytes | None]) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(with_header(txlog(), changes))


def test_the_schemas_id_may_stand_in_the_schema_alone_as_java_writes_it() -> None:
    found = decoded(with_header(txlog(), {"schema-id": None, "schema": b'{"type": "struct", "schema-id": 5}'}))
    assert found.schema_id == 5


# the entries


@pytest.mark.parametrize("said", [b"0", b"2", b"4"])
def test_a_txlog_that_announces_another_number_of_entries_is_refused(said: bytes) -> None:
    with pytest.raises(TxlogCorrupt, match=f"announces {said.decode()} entries, the file holds 3"):
        decoded(with_header(txlog(3), own(entries=said)))


def test_a_txlog_cut_behind_its_header_or_any_block_is_refused() -> None:
    data = txlog(2500)
    ends = list(block_ends(data))
    assert len(ends) == 3, "there are three blocks"
    for end in ends:
        # There it is a whole Avro file: only the number of entries tells.
        assert avro.decode(data[:end], MOST)
        with pytest.raises(TxlogCorrupt, match="announces 2500 entries"):
            decoded(data[:end])
    assert len(decoded(data).entries) == 2500


def test_the_number_of_entries_may_be_left_out_where_no_cut_can_go_unnoticed() -> None:
    assert decoded(with_header(txlog(1000), own(entries=None))).row_count == 100_000
    with pytest.raises(TxlogCorrupt, match=r"lacks bookkeeper\.entries"):
        decoded(with_header(txlog(1001), own(entries=None)))


def test_a_txlog_cut_at_any_byte_is_refused() -> None:
    data = txlog(2)
    for end in range(len(data)):
        with pytest.raises(TxlogCorrupt):
            decoded(data[:end])
    with pytest.raises(TxlogCorrupt):
        decoded(data + b"\0")


@pytest.mark.parametrize("path", ["/lake/x/", "/lake/../x", "s3://b/%2e%2e/x", "FILE:///lake/x", "x"])
def test_a_path_that_readers_would_take_for_another_is_refused(path: str) -> None:
    # Once it is in the table, every scan of it fails.
    assert decoded(txlog()).paths == (data_file(0).path,)
    with pytest.raises(PathRefused):
        _ = decoded(encode(ENVELOPE, SCHEMA, SPEC, [replace(data_file(0), path=path)])).paths


def test_a_text_file_with_the_right_name_is_refused() -> None:
    with pytest.raises(TxlogCorrupt, match="not an Avro file"):
        decoded(b"This is no txlog.\n" * 100)


def test_a_txlog_larger_than_allowed_is_refused() -> None:
    data = txlog(100)
    with pytest.raises(TxlogTooLarge):
        decode(NAME, data, len(data) - 1)


def test_a_txlog_of_more_entries_than_a_table_takes_at_once_is_refused() -> None:
    found = avro.decode(txlog(1000), MOST)
    data = avro.encode({**found.meta, "bookkeeper.entries": b"101000"}, list(found.blocks) * 101)
    assert MOST_ENTRIES == 100_000
    with pytest.raises(TxlogTooLarge, match="101000 entries"):
        decode(NAME, data, 2**30)


# other libraries


def iceberg_file(number: int) -> IcebergFile:
    ours = data_file(number)
    made = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=ours.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*ours.partition),
        record_count=ours.record_count,
        file_size_in_bytes=ours.size_bytes,
        column_sizes=ours.column_sizes,
        value_counts=ours.value_counts,
        null_value_counts=ours.null_value_counts,
        nan_value_counts=None,
        lower_bounds=ours.lower_bounds,
        upper_bounds=ours.upper_bounds,
        key_metadata=None,
        split_offsets=list(ours.split_offsets or ()),
        equality_ids=None,
        sort_order_id=0,
    )
    made.spec_id = 0
    return made


@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_a_manifest_of_pyicebergs_own_writer_becomes_a_txlog_with_our_keys(codec: str, tmp_path: Path) -> None:
    output = PyArrowFileIO().new_output(f"file://{tmp_path}/manifest.avro")
    with write_manifest(2, SPEC, SCHEMA, output, 1, codec) as writer:  # type: ignore[arg-type]
        for number in range(3):
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=None, data_file=iceberg_file(number)
            )
            writer.add_entry(entry)
    ours = avro.decode(txlog(3), MOST)
    keys = {key: value for key, value in ours.meta.items() if key.startswith("bookkeeper.")}
    found = avro.decode((tmp_path / "manifest.avro").read_bytes(), MOST)
    assert len(found.blocks) == 3, "pyiceberg writes a block for every entry"
    data = avro.encode({**found.meta, **keys}, found.blocks)
    assert said(decoded(data)) == said(decoded(txlog(3)))
