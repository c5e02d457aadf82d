"""
What a checkpoint says of its query, however Spark left it.
"""

from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from bookkeeper.errors import ConfigInvalid, StorageUnavailable
from bookkeeper.history.checkpoint import Checkpoint, CheckpointUnreadable, Offset, read
from bookkeeper.history.checkpoint_store import FsspecCheckpointStore, absolute, open_checkpoint
from tests.support.checkpoints import BEGINNING, Query, offset


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "cp")


def seen(query: Query, source: int | None = None) -> Checkpoint:
    return read(open_checkpoint(query.url), source)


def test_the_needs_of_a_query_that_never_ran_are_unknown(query: Query) -> None:
    assert seen(query).needed == ()


def test_before_the_first_commit_the_initial_offset_is_needed(query: Query) -> None:
    query.begin(offset(7)).plan(offset(9, 2))
    assert seen(query).needed == (Offset(7, 0), Offset(9, 2))


def test_the_newest_committed_offset_is_where_it_goes_on(query: Query) -> None:
    query.begin(offset(7)).done(offset(8, 1)).done(offset(9, 4))
    found = seen(query)
    assert found.needed == (Offset(9, 4),)
    assert (found.batch, found.initial) == (1, Offset(7, 0))
    assert found.at is not None and found.at.tzinfo is not None


def test_a_planned_batch_needs_its_own_offset_too(query: Query) -> None:
    query.begin(offset(7)).done(offset(8)).plan(offset(9))
    assert seen(query).needed == (Offset(8, 0), Offset(9, 0))


def test_batches_are_ordered_as_numbers(query: Query) -> None:
    for number in range(12):
        query.done(offset(number + 100))
    assert seen(query).needed == (Offset(111, 0),)


def test_purged_batches_and_files_that_are_no_batches_are_passed_over(query: Query) -> None:
    for number in range(4):
        query.done(offset(number + 100))
    for key in ("offsets/0", "offsets/1", "commits/0", "commits/1"):
        (query.root / key).unlink()
    query.write("offsets/.9.1f3a.tmp", "v1")
    query.write("commits/99.compact", "")
    assert seen(query).needed == (Offset(103, 0),)


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", 'v1\n{}\n{"version":1,"snapsh'])
def test_a_half_written_plan_changes_nothing_after_a_commit(query: Query, text: str) -> None:
    query.begin(offset(7)).done(offset(8)).plan(offset(9))
    query.write("offsets/1", text)
    assert seen(query).needed == (Offset(8, 0),)


@pytest.mark.parametrize(
    "text",
    ["", "v1", "v3\n{}\n" + offset(1), 'v1\n{}\n{"version":2}', "v1\n{}\n51", "v1\n{}\n[]", "v1\n{}\n" + "[" * 60_000],
)
def test_a_committed_batch_without_a_readable_offset_is_said(query: Query, text: str) -> None:
    query.begin(offset(7)).done(offset(8))
    query.write("offsets/0", text)
    with pytest.raises(CheckpointUnreadable, match="offsets/0"):
        seen(query)


def test_a_first_plan_that_is_half_written_is_said(query: Query) -> None:
    query.begin(offset(7)).plan(offset(9))
    query.write("offsets/0", "v1")
    with pytest.raises(CheckpointUnreadable):
        seen(query)


def test_a_commit_whose_offset_is_gone_is_said(query: Query) -> None:
    query.done(offset(8))
    (query.root / "offsets/0").unlink()
    with pytest.raises(CheckpointUnreadable, match="not there"):
        seen(query)


def test_bytes_that_are_no_text_are_said(query: Query) -> None:
    query.done(offset(8))
    (query.root / "offsets/0").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointUnreadable, match="not text"):
        seen(query)


def test_of_several_sources_the_index_says_which(query: Query) -> None:
    query.begin("{}", offset(5)).done("-", offset(8, 3))
    with pytest.raises(CheckpointUnreadable) as refused:
        seen(query)
    assert "--source" in refused.value.hint
    assert seen(query, 1).needed == (Offset(8, 3),)
    with pytest.raises(CheckpointUnreadable, match="no source 2"):
        seen(query, 2)


def test_a_source_without_an_offset_yet_goes_on_from_its_initial_one(query: Query) -> None:
    query.begin("{}", offset(5)).done("{}", "-")
    assert seen(query, 1).needed == (Offset(5, 0),)


def test_offset_logs_of_version_2_name_their_sources(query: Query) -> None:
    query.begin(offset(5)).plan(f"1:{offset(6)}", f"0:{offset(8, 3)}", version="v2").commit()
    assert seen(query, 0).needed == (Offset(8, 3),)
    assert seen(query, 1).needed == (Offset(6, 0),)


def test_an_offset_at_the_very_beginning_has_no_snapshot(query: Query) -> None:
    query.begin(offset(BEGINNING, -1)).done(offset(BEGINNING, -1))
    assert seen(query).needed == (Offset(None, 0),)


def test_a_checkpoint_that_is_not_there_is_unavailable_not_empty(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        read(open_checkpoint(f"file://{tmp_path}/nowhere"))


def test_any_fsspec_filesystem_will_do(query: Query) -> None:
    query.begin(offset(7)).done(offset(8, 1)).plan(offset(9))
    memory = fsspec.filesystem("memory")
    memory.put(f"{query.root}/", "/streams-cp/", recursive=True)
    for place in (
        FsspecCheckpointStore("memory://streams-cp"),
        open_checkpoint("memory://streams-cp"),
        FsspecCheckpointStore(f"local://{query.root}"),
    ):
        assert read(place).needed == (Offset(8, 1), Offset(9, 0))


def test_an_unknown_filesystem_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="nosuchfs"):
        open_checkpoint("nosuchfs://somewhere/cp")


def test_a_path_becomes_a_url_that_others_understand() -> None:
    assert absolute("/a/b/") == "file:///a/b"
    assert absolute("s3://a/b/") == "s3://a/b"
