"""Which live files rows may be deleted from."""

import pytest

from bookkeeper.contract.delete_scope import DeleteFile
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from reaper.compactor.choose_files import LiveFile
from reaper.compactor.live_files import Deleted

PATH = "s3://lake/data/a.parquet"


@pytest.mark.parametrize(
    ("scope", "has"),
    [
        ((0, (1,)), True),
        ((0, (2,)), False),
        ((3, (1,)), False),
        (None, True),
        (PATH, True),
        ("s3://lake/data/b.parquet", False),
    ],
)
def test_a_file_is_left_alone_when_one_of_many_delete_files_applies_to_it(scope: object, has: bool) -> None:
    older = DeleteFile("old", EQUALITY_DELETES, 1, (0, (1,)))
    deletes = [older, DeleteFile("new", POSITION_DELETES, 5, scope), older]  # type: ignore[arg-type]

    def file(number: int) -> LiveFile:
        return LiveFile(PATH, "PARQUET", 0, (1,), 1, 10, number, number)

    assert [Deleted(deletes).has(file(number)) for number in (0, 5, 6)] == [True, has, False]
