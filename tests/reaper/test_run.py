"""
A run on a real table: what goes, what stays, and that `outlook` says so before.
"""

from tests.reaper.lake import Lake


def test_expired_snapshots_go_with_their_files_and_the_rest_reads_the_same(lake: Lake) -> None:
    for _ in range(6):
        lake.append()
    before = lake.disk()

    done = lake.reap()

    assert done.snapshots == 4
    assert len(lake.history()) == 2
    assert lake.rows() == [0, 1, 2, 3, 4, 5]
    assert lake.reachable() <= lake.disk().keys()
    assert len(before.keys() - lake.disk().keys()) == done.manifests + done.metadata_files


def test_what_is_planned_is_exactly_what_disappears(lake: Lake) -> None:
    files = [lake.data_file() for _ in range(20)]
    for file in files:
        lake.append(file)
    lake.delete(files[0].file_path, files[1].file_path)
    lake.merge()
    for _ in range(3):
        lake.append()
    before = lake.disk()
    planned = lake.outlook().files

    done = lake.reap()

    gone = {path: size for path, size in before.items() if path not in lake.disk()}
    assert planned.sizes() == gone
    assert planned.data.keys() == {files[0].file_path, files[1].file_path}
    assert all(getattr(planned, kind) for kind in ("manifests", "manifest_lists", "metadata"))
    assert (done.data_files, done.bytes) == (2, sum(gone.values()))
    assert lake.rows() == [*range(2, 23)]
    assert lake.reachable() <= lake.disk().keys()
