"""A symbolic link in a table's folders leads no program astray: another table's files are neither shown nor deleted."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.check_live_files import check_files
from bookkeeper.commands.verify import ERROR, verify
from bookkeeper.config.settings import Compaction, Reaper, Retention
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import decode
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.discover.probe import Probe
from bookkeeper.errors import NoDataFile, NotAFile, NotPossible, Retry, StorageUnavailable
from bookkeeper.format.entries import DataFile
from bookkeeper.stores.beneath import LinkRefused, walk
from bookkeeper.tick.intake import files_error
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from reaper.context import ReaperContext
from reaper.orphans import find_orphans
from reaper.run import reap
from tests.consumers.consumers import opened
from tests.support.compactor import live, published
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake, Writes, live_files
from tests.tick.test_take_rewrites import rejected as rejected_rewrites
from writers import Writer

RETENTION = Retention(keep=timedelta(days=1), brake=1.0)


@pytest.fixture(params=["kernel", "walk"])
def lake(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table whose old rows retention drops; on a system with openat2 and on one without."""
    if request.param == "walk":
        monkeypatch.setattr("bookkeeper.stores.local.best", lambda: walk)
        monkeypatch.setattr("bookkeeper.stores.beneath.best", lambda: walk)
    return Lake(tmp_path / "lake", partition_by=(), retention=RETENTION)


def location(lake: Lake) -> Path:
    return Path(lake.folder.card().location.removeprefix("file://"))


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def behind_a_directory(path: Path, elsewhere: Path, link: str = "x") -> Path:
    """The file lies elsewhere, and a link to that folder in the one where it was; the path through that."""
    elsewhere.mkdir(exist_ok=True)
    path.rename(elsewhere / path.name)
    if not (path.parent / link).is_symlink():
        (path.parent / link).symlink_to(os.path.relpath(elsewhere, path.parent))
    return path.parent / link / path.name


def behind_a_link(path: Path, elsewhere: Path) -> Path:
    """The file lies elsewhere, and a link to it where it was."""
    elsewhere.mkdir(exist_ok=True)
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)
    return path


def behind_a_chain(path: Path, elsewhere: Path) -> Path:
    found = behind_a_directory(path, elsewhere, "last")
    (path.parent / "first").symlink_to("last")
    return path.parent / "first" / found.name


def behind_a_way_up(path: Path, elsewhere: Path) -> Path:
    """A link to the table's own location: the file is its own, by another path."""
    (path.parent / "up").symlink_to("..")
    return path.parent / "up" / "data" / path.name


Behind = Callable[[Path, Path], Path]
BEHIND: list[Behind] = [behind_a_directory, behind_a_link, behind_a_chain, behind_a_way_up]


def linked(lake: Lake, writer: Writes, key: str, behind: Behind = behind_a_directory, **changes: Any) -> DataFile:
    """A data file of the next txlog, named through a link; it lies in the folder `other`."""
    file = writer.file([key], sequence=writer.name.sequence + 1, **changes)
    found = behind(local(file.path), lake.root / "other")
    return replace(file, path=f"file://{found}")


def publish(writer: Writes, file: DataFile, **envelope: Any) -> str:
    name, data = writer.encoded([file], **envelope)
    writer.lake.folder.publish(name, data)
    return str(name)


def others(lake: Lake) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (lake.root / "other").iterdir()}


def committed_before(lake: Lake, key: str, behind: Behind = behind_a_directory, **changes: Any) -> DataFile:
    """A file that is live by a path through a link: of a table that a version committed to that looked at no link."""
    writer = Writes(lake, f"earlier-{key}")
    publish(writer, file := linked(lake, writer, key, behind, **changes))
    lake.tick(lake.book(check_files=False))
    assert [item.file_path for item in live_files(lake) if item.file_path == file.path] == [file.path]
    return file


# -- intake


@pytest.mark.parametrize("behind", BEHIND)
def test_a_txlog_that_names_a_file_through_a_link_is_rejected_and_the_others_get_in(lake: Lake, behind: Behind) -> None:
    book, bad = lake.book(), Writes(lake, "bad")
    goods = [Writes(lake, f"good-{number}") for number in range(3)]
    for number, good in enumerate(goods):
        good.publish(f"k{number}")
    refused = publish(bad, linked(lake, bad, "x", behind))
    result = lake.tick(book)
    assert (result.rejected, result.commit.txlogs, result.trouble, lake.pending()) == ([refused], 3, None, [])
    assert lake.keys() == ["k0", "k1", "k2"]
    decoded = decode(name := TxlogName.parse(refused), lake.folder.store.read(f"rejected/{name}"), 2**20)
    assert isinstance(files_error(lake.view().data_store(lake.store), decoded), NoDataFile)  # as `show` says it
    reason = lake.folder.reason(refused)
    assert reason["error"] == "NoDataFile" and "symbolic link" in reason["reason"]
    link = {behind_a_directory: "data/x", behind_a_chain: "data/first", behind_a_way_up: "data/up"}.get(behind, "data/")
    assert f"{location(lake)}/{link}" in reason["reason"] and "No link below" in reason["hint"]


def test_a_live_manifest_that_is_named_as_a_data_file_is_refused(lake: Lake) -> None:
    """With forged bounds retention dropped the entry at once, and the reaper deleted the manifest."""
    Writes(lake, "good").publish("a")
    lake.tick()
    (manifest,) = lake.book().ledger.manifests(lake.view())
    (location(lake) / "data" / "m").symlink_to("../metadata")
    bad, name = Writes(lake, "bad"), local(manifest.manifest_path).name
    size = local(manifest.manifest_path).stat().st_size
    file = replace(bad.file(["x"]), file_format="AVRO", size_bytes=size)
    # By a name that is its txlog's own: of a hard link, which needs a right to the folder of the metadata.
    own = f"{bad.name.writer}-{bad.name.incarnation}-0000000001-x.avro"
    os.link(location(lake) / "metadata" / name, location(lake) / "metadata" / own)
    refused = publish(bad, replace(file, path=f"file://{location(lake)}/data/m/{own}"))
    lake.tick()
    assert lake.rejected() == {refused: "NoDataFile"} and lake.keys() == ["a"]


def test_a_delete_file_behind_a_link_is_refused(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path / "lake")
    good, bad = Steps(lake, "good"), Steps(lake, "bad")
    good.publish_steps(Step(upserts={1: "a"}))
    data, deletes = bad.files_of(Step(upserts={2: "b"}))
    found = behind_a_directory(local(deletes[0].file.path), lake.root / "other")
    moved = [deletes[0]._replace(file=replace(deletes[0].file, path=f"file://{found}"))]
    name, encoded = bad.encoded_steps(data, moved)
    lake.folder.publish(name, encoded)
    result = lake.tick()
    assert (result.commit.txlogs, lake.rejected()) == (1, {str(name): "NoDataFile"})


@pytest.mark.parametrize("place", ["data", "metadata"])
def test_a_folder_of_the_table_that_is_a_link_stops_the_table_and_condemns_no_txlog(lake: Lake, place: str) -> None:
    """A person moved it to another disk. Once the folder itself is there, everything goes on."""
    Writes(lake, "w0").publish("a")
    lake.tick()
    folder = location(lake) / place
    folder.rename(lake.root / "elsewhere")
    folder.symlink_to(lake.root / "elsewhere")
    book, writer = lake.book(), Writes(lake, "w1")
    file = writer.file(["b"], sequence=1) if place == "metadata" else moved_file(lake, writer)
    publish(writer, file)
    before = sorted(path.name for path in (lake.root / "elsewhere").iterdir())
    for _ in range(3):
        trouble = trouble_of(lambda: lake.tick(book))
        assert (lake.rejected(), len(lake.pending())) == ({}, 1)
        assert f"{folder} is a symbolic link" in str(trouble) and "mount" in trouble.hint
    assert sorted(path.name for path in (lake.root / "elsewhere").iterdir()) == before
    folder.unlink()
    (lake.root / "elsewhere").rename(folder)
    assert lake.tick(book).commit.txlogs == 1
    assert (lake.keys(), lake.rejected()) == (["a", "b"], {})


def trouble_of(tick: Callable[[], Any]) -> Retry:
    """What a tick says or raises; either is tried again."""
    try:
        trouble = tick().trouble
    except Retry as error:
        trouble = error
    assert isinstance(trouble, Retry)
    return trouble


def moved_file(lake: Lake, writer: Writes) -> DataFile:
    """A good file, which its writer wrote before the folder was moved."""
    folder = location(lake) / "data"
    target = folder.readlink()
    folder.unlink()
    target.rename(folder)
    file = writer.file(["b"], sequence=1)
    folder.rename(target)
    folder.symlink_to(target)
    return file


@pytest.mark.parametrize("probing", [False, True])
def test_a_pending_folder_that_is_a_link_is_trouble_and_not_empty(lake: Lake, probing: bool) -> None:
    book, writer = lake.book(), Writes(lake)
    if probing:
        book.inbox.pending_index = PendingIndex(Probe(), 1000)
    writer.publish("a")
    lake.tick(book)
    writer.publish("b")
    pending = Path(lake.made.folder.removeprefix("file://")) / "pending"
    pending.rename(lake.root / "elsewhere")
    pending.symlink_to(lake.root / "elsewhere")
    if probing:  # what cannot be told of a name waits for the next listing
        assert lake.tick(book).commit is None
    else:
        assert f"{pending} is a symbolic link" in str(trouble_of(lambda: lake.tick(book)))
    assert lake.rejected() == {}
    with pytest.raises(StorageUnavailable, match="symbolic link"):
        writer.publish("c")
    pending.unlink()
    (lake.root / "elsewhere").rename(pending)
    lake.tick(book)
    lake.tick(book)
    assert lake.keys() == ["a", "b"] and lake.rejected() == {}


@pytest.mark.parametrize("target", ["nowhere", "/proc/self/status"])
def test_a_link_in_the_place_of_a_txlog_is_a_hole_and_holds_up_nothing(lake: Lake, target: str) -> None:
    writer = Writes(lake)
    writer.publish("a")
    lake.tick()
    link = writer.name.at(2)
    writer.publish("c", sequence=3)
    (Path(lake.made.folder.removeprefix("file://")) / "pending" / str(link)).symlink_to(target)
    for _ in range(2):
        lake.tick(seconds=11)
    assert lake.keys() == ["a", "c"] and set(lake.rejected()) <= {str(link)}


def test_a_new_file_of_a_rewrite_behind_a_link_has_the_rewrite_rejected(lake: Lake) -> None:
    writer = Writes(lake)
    for key in "ab":
        writer.publish(key)
    lake.tick()
    rewrite_id = published(lake, live(lake))
    path = next((location(lake) / "data").rglob(f"{rewrite_id}*"))
    behind_a_link(path, lake.root / "other")
    lake.tick(seconds=61)
    (name,) = rejected_rewrites(lake)
    assert "symbolic link" in lake.folder.reason(name)["reason"]
    assert lake.keys() == ["a", "b"]


@pytest.mark.parametrize("day", [True, False])
def test_no_writer_writes_through_a_link_and_it_goes_on_once_the_folder_is_there(tmp_path: Path, day: bool) -> None:
    lake = Lake(tmp_path / "lake", partition_by=("day(timestamp)",) if day else ())
    data, other = location(lake) / "data", lake.root / "other"
    other.mkdir()
    link = data / f"timestamp_day={lake.clock.now:%Y-%m-%d}" if day else data
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(other)
    with Writer.open(lake.made.folder, "w", clock=lake.clock, wait=lambda seconds: True) as writer:
        writer.write({"timestamp": lake.clock.now, "key": "a", "value": b"v"})
        with pytest.raises(StorageUnavailable, match="symbolic link") as refused:
            writer.publish()
        assert "mount" in refused.value.hint and [*other.iterdir()] == []
        link.unlink()
        writer.publish()
    lake.tick()
    assert lake.keys() == ["a"]


# -- files that are live already


@pytest.mark.parametrize("behind", [behind_a_directory, behind_a_chain])
def test_retention_and_expiry_of_such_a_file_do_not_delete_it(
    lake: Lake, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    old = lake.clock.now - timedelta(days=3)
    plain = Writes(lake, "plain")
    plain.publish("old", at=old)
    writer = Writes(lake, "earlier")
    publish(writer, linked_at(lake, writer, old, behind))
    lake.tick(lake.book(check_files=False))
    Writes(lake, "good").publish("new")
    before, book = others(lake), lake.book()
    for _ in range(3):
        lake.tick(book, hours=1)
    assert lake.keys() == ["new"]
    eager = replace(lake.settings, reaper=Reaper(older_than=timedelta(0), retain_last=1))
    done = reap(open_catalog(lake.catalog_settings), eager, lake.clock.now, open_store=lake.store)
    assert done.data_files == 2 and others(lake) == before
    (said,) = [record for record in caplog.records if record.__dict__.get("action") == "refuse"]
    assert (said.getMessage(), said.__dict__["files"]) == ("files behind a symbolic link are left alone", 1)
    left = [path.name for path in (location(lake) / "data").iterdir() if path.is_file()]
    assert len(left) == 1 and left[0].endswith("new.parquet")
    assert reap(open_catalog(lake.catalog_settings), eager, lake.clock.now, open_store=lake.store).data_files == 0


def linked_at(lake: Lake, writer: Writes, at: Any, behind: Behind) -> DataFile:
    file = writer.file(["x"], at, sequence=writer.name.sequence + 1)
    return replace(file, path=f"file://{behind(local(file.path), lake.root / 'other')}")


def test_of_a_data_folder_that_is_a_link_nothing_is_deleted_until_it_is_a_folder_again(lake: Lake) -> None:
    Writes(lake).publish("old", at=lake.clock.now - timedelta(days=3))
    lake.tick()
    Writes(lake, "good").publish("new")
    book = lake.book()
    for _ in range(3):
        lake.tick(book, hours=1)
    data = location(lake) / "data"
    before = sorted(path.name for path in data.iterdir())
    data.rename(lake.root / "elsewhere")
    data.symlink_to(lake.root / "elsewhere")
    eager = replace(lake.settings, reaper=Reaper(older_than=timedelta(0), retain_last=1))
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match=f"{data} is a symbolic link"):
            reap(open_catalog(lake.catalog_settings), eager, lake.clock.now, open_store=lake.store)
    assert sorted(path.name for path in (lake.root / "elsewhere").iterdir()) == before != []
    data.unlink()
    (lake.root / "elsewhere").rename(data)
    assert reap(open_catalog(lake.catalog_settings), eager, lake.clock.now, open_store=lake.store).data_files == 1
    assert len([*data.iterdir()]) == 1 and lake.keys() == ["new"]


def test_the_sweep_passes_over_a_link_and_goes_on(lake: Lake) -> None:
    Writes(lake).publish("a")
    lake.tick()
    data, other = location(lake) / "data", lake.root / "other"
    other.mkdir()
    (other / "theirs.parquet").write_bytes(b"PAR1")
    (data / "x").symlink_to(other)
    (data / "orphan.parquet").write_bytes(b"PAR1")
    for path in (other / "theirs.parquet", data / "orphan.parquet"):
        os.utime(path, (0, 0))
    context = ReaperContext.of(lake.settings, open_catalog(lake.catalog_settings), lake.store, lake.clock.now)
    found = find_orphans(context, lake.clock.now + timedelta(days=10))
    named = {local(orphan.location).name for orphan in found.orphans}
    assert "orphan.parquet" in named and "theirs.parquet" not in named and "x" not in named


@pytest.mark.parametrize("behind", BEHIND)
def test_verify_names_the_file_and_the_link_and_what_to_do(lake: Lake, behind: Behind) -> None:
    Writes(lake).publish("a")
    lake.tick()
    file = committed_before(lake, "x", behind)
    (finding,) = [item for item in verify(lake.audit()) if item.severity == ERROR]
    assert finding.where == file.path and "is" in finding.what and "symbolic link" in finding.what
    assert "put it there in the place of the link" in finding.what
    with pytest.raises(NotPossible, match="symbolic link"):
        check_files(lake.book().ledger, lake.view())


def test_a_consumer_does_not_hand_out_rows_behind_a_link(lake: Lake) -> None:
    Writes(lake).publish("a")
    lake.tick()
    file = committed_before(lake, "secret")
    with opened(lake) as consumer:
        given = list[str]()
        with pytest.raises(NotPossible, match="symbolic link") as refused:
            for batch in consumer.batches(follow=False):
                given += batch.table["key"].to_pylist()
                consumer.commit(batch)
    assert file.path in str(refused.value) and "mount" in refused.value.hint
    assert "secret" not in given


def test_a_compactor_leaves_a_file_behind_a_link_alone(lake: Lake) -> None:
    for number in range(4):
        Writes(lake, f"w{number}").publish(f"k{number}")
    lake.tick()
    file = committed_before(lake, "secret")
    settings = replace(lake.settings, compaction=Compaction(fan_in=4))
    its, catalog = Compactor(settings, rewrite, lake.clock), open_catalog(lake.catalog_settings)
    for _ in range(3):
        its.round(catalog, lake.clock.move(hours=2))
    its.close()
    lake.tick(seconds=61)
    assert file.path in [item.file_path for item in live_files(lake)]
    own = {path.name for path in (location(lake) / "data").iterdir() if path.is_file()}
    for name in own:
        assert b"secret" not in (location(lake) / "data" / name).read_bytes()


def test_a_manifest_that_became_a_link_is_read_neither_by_the_store_nor_by_the_tables_own_file_io(lake: Lake) -> None:
    Writes(lake).publish("a")
    lake.tick()
    view = lake.view()
    (manifest,) = lake.book().ledger.manifests(view)
    path = local(manifest.manifest_path)
    behind_a_link(path, lake.root / "other")
    with pytest.raises(NotAFile, match="symbolic link"):
        view.metadata_store(lake.store).read(path.name)
    with pytest.raises(LinkRefused, match="symbolic link"):
        view.table.io.new_input(manifest.manifest_path).open()
