"""Which data files a delete file applies to: each case of Iceberg's "Scan Planning"."""

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform

from bookkeeper.contract.delete_scope import delete_file, scopes_of
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES, DataFile, Entry

A, B = "s3://lake/data/a.parquet", "s3://lake/data/b.parquet"
#: of the reserved column `file_path`
FILE_PATH = 2_147_483_546


def spec(number: int, *transforms: Any) -> PartitionSpec:
    fields = [PartitionField(1, 1000 + at, transform, f"p{at}") for at, transform in enumerate(transforms)]
    return PartitionSpec(*fields, spec_id=number)


DAYS, OTHER, NONE, VOID = (
    spec(0, IdentityTransform()),
    spec(3, IdentityTransform()),
    spec(7),
    spec(8, VoidTransform()),
)


def applies(
    content: int,
    spec: PartitionSpec,
    partition: tuple[Any, ...] | None,
    number: int,
    referenced: str | None = None,
    bounds: tuple[str, str] | None = None,
) -> bool:
    """Whether a delete file with the number 5 applies to a.parquet of spec 0, partition (1,), with this number."""
    lower, upper = ({} if bounds is None else {FILE_PATH: path.encode()} for path in bounds or ("", ""))
    file = DataFile("s3://lake/data/d.parquet", "PARQUET", (), 1, 1, lower_bounds=lower, upper_bounds=upper)
    delete = delete_file(Entry(1, None, 5, 5, content, None, referenced, file), 5, spec, partition)
    return delete.scope in scopes_of(A, 0, (1,)) and number <= delete.largest_number


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((POSITION_DELETES, DAYS, (1,), 5), True),  # its own commit's rows too
        ((POSITION_DELETES, DAYS, (1,), 6), False),
        ((POSITION_DELETES, DAYS, (2,), 5), False),
        ((POSITION_DELETES, OTHER, (1,), 5), False),
        ((POSITION_DELETES, NONE, (), 4), False),  # not for the table, as equality deletes are
        ((EQUALITY_DELETES, DAYS, (1,), 4), True),
        ((EQUALITY_DELETES, DAYS, (1,), 5), False),
        ((EQUALITY_DELETES, DAYS, (2,), 4), False),
        ((EQUALITY_DELETES, OTHER, (1,), 4), False),
        ((EQUALITY_DELETES, NONE, (), 4), True),
        ((EQUALITY_DELETES, NONE, (), 5), False),
        ((EQUALITY_DELETES, VOID, (None,), 4), True),
        # a partition that is not known may be any
        ((POSITION_DELETES, OTHER, None, 5), True),
        ((EQUALITY_DELETES, OTHER, None, 4), True),
        ((EQUALITY_DELETES, OTHER, None, 5), False),
        # of one data file, by the field or by bounds, in whichever partition
        ((POSITION_DELETES, DAYS, (1,), 5, A), True),
        ((POSITION_DELETES, DAYS, (1,), 6, A), False),
        ((POSITION_DELETES, DAYS, (1,), 5, B), False),
        ((POSITION_DELETES, OTHER, (9,), 5, A), True),
        ((POSITION_DELETES, DAYS, None, 5, B), False),
        ((POSITION_DELETES, DAYS, (1,), 5, None, (A, A)), True),
        ((POSITION_DELETES, DAYS, (1,), 5, None, (B, B)), False),
        ((POSITION_DELETES, DAYS, (1,), 5, None, (B, "s3://lake/data/c.parquet")), True),  # of two: of the partition
        # these say nothing of an equality delete
        ((EQUALITY_DELETES, DAYS, (1,), 4, B, (B, B)), True),
        ((EQUALITY_DELETES, DAYS, (2,), 4, A, (A, A)), False),
    ],
)
def test_a_delete_file_applies_as_scan_planning_says(given: tuple[Any, ...], expected: bool) -> None:
    assert applies(*given) is expected
