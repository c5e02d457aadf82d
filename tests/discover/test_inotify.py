"""Real inotify: what it tells, and that it answers LOOK whenever a name may have been lost."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.discover.discovery import LOOK
from bookkeeper.stores.local import LocalStore
from tests.discover.pending import RUN, publish

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")
if sys.platform.startswith("linux"):
    from bookkeeper.discover.inotify import Inotify


@pytest.fixture
def pending(tmp_path: Path) -> Path:
    return tmp_path / "pending"


@pytest.fixture
def watch(pending: Path) -> "Iterator[Inotify]":
    made = Inotify(str(pending))
    assert made.hints() == LOOK
    yield made
    made.close()


def test_the_first_answer_is_look_for_what_was_there_before(pending: Path) -> None:
    pending.mkdir()
    publish(pending, RUN)
    first = Inotify(str(pending))
    assert first.hinted()
    assert (first.hints(), first.hints()) == (LOOK, frozenset())
    first.close()


def test_a_published_txlog_is_a_hint_once(watch: "Inotify", pending: Path) -> None:
    assert not watch.hinted()
    publish(pending, RUN)
    assert watch.hinted()
    assert (watch.hints(), watch.hints(), watch.hinted()) == (frozenset({RUN}), frozenset(), False)


def test_a_store_makes_it_and_a_rename_does(watch: "Inotify", tmp_path: Path, pending: Path) -> None:
    LocalStore(str(tmp_path)).create(f"pending/{RUN}", b"txlog")
    (tmp_path / "elsewhere").write_bytes(b"txlog")
    os.rename(tmp_path / "elsewhere", pending / str(RUN.at(2)))
    assert watch.hints() == {RUN, RUN.at(2)}


def test_temporary_files_are_no_hint(watch: "Inotify", pending: Path) -> None:
    (pending / f"{RUN}.0a1b2c.tmp").write_bytes(b"half")
    assert (watch.hinted(), watch.hints()) == (False, frozenset())


def test_a_name_that_is_no_txlogs_has_the_folder_listed_so_that_it_is_rejected(watch: "Inotify", pending: Path) -> None:
    publish(pending, "holiday.txlog.avro")
    assert watch.hints() == LOOK


def test_an_overflow_of_the_kernels_queue_has_the_folder_listed(watch: "Inotify", pending: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip(f"it would take {most} files")
    # Touching one file again and again would be one event: the kernel joins equal neighbours.
    for number in range(most // 2 + 1):
        os.close(os.open(pending / f"a{number % 2}", os.O_CREAT | os.O_WRONLY))
        os.unlink(pending / f"a{number % 2}")
        os.close(os.open(pending / f"b{number % 2}", os.O_CREAT | os.O_WRONLY))
        os.unlink(pending / f"b{number % 2}")
    publish(pending, RUN)
    assert watch.hints() == LOOK
    publish(pending, RUN.at(2))
    assert watch.hints() == {RUN.at(2)}


def test_many_names_at_once_are_a_listing(watch: "Inotify", pending: Path) -> None:
    for number in range(1, 1002):
        publish(pending, RUN.at(number))
    assert watch.hints() == LOOK


def test_a_directory_that_was_removed_is_watched_again_when_it_is_back(watch: "Inotify", pending: Path) -> None:
    shutil.rmtree(pending)
    assert [watch.hints(), watch.hints()] == [LOOK, LOOK]
    assert pending.is_dir()
    publish(pending, RUN)
    assert watch.hints() == {RUN}


def test_a_directory_that_was_replaced_is_watched_under_its_name(watch: "Inotify", pending: Path) -> None:
    pending.rename(pending.with_name("old"))
    publish(pending.with_name("old"), RUN)
    assert [watch.hints(), watch.hints()] == [LOOK, LOOK]
    publish(pending, RUN.at(2))
    assert watch.hints() == {RUN.at(2)}


def test_while_its_disk_is_away_it_asks_for_a_listing_and_makes_no_directory(tmp_path: Path) -> None:
    root = tmp_path / "mount"
    root.mkdir()
    watch = Inotify(str(root / "pending"))
    watch.hints()
    shutil.rmtree(root)
    assert [watch.hints() for _ in range(3)] == [LOOK] * 3
    assert not root.exists()
    assert (watch.hinted(), list(watch.wakes())) == (False, [])  # it wakes no loop: the ticks go on at their pace


def test_a_closed_one_wakes_no_loop_and_asks_for_listings(watch: "Inotify") -> None:
    watch.close()
    assert (list(watch.wakes()), watch.hinted(), watch.hints(), watch.hints()) == ([], False, LOOK, LOOK)


def test_without_its_parent_there_is_no_watch(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Inotify(str(tmp_path / "nothing" / "pending"))
