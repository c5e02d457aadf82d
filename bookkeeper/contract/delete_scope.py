"""
Which data files a delete file applies to (Iceberg spec, "Scan Planning").

A delete file has one scope: a data file, a partition of a spec, or the table. A data file lies in one scope of each
kind. The delete file applies to it where `delete.scope in scopes_of(…)` and its data sequence number is at most
`delete.largest_number`.
"""

from collections.abc import Hashable
from typing import NamedTuple

from pyiceberg.partitioning import PartitionSpec

from bookkeeper.contract.rewrite import file_key
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES, Entry

#: a data file by `file_key`, a partition by its spec's id and its key, or None: the table
Scope = str | tuple[int, Hashable] | None
#: of `file_path`, the first column of a position delete file (Iceberg spec, "Reserved Field IDs")
_FILE_PATH = 2_147_483_546


class DeleteFile(NamedTuple):
    """A live delete file."""

    #: by `file_key`
    key: str
    content: int
    sequence_number: int
    scope: Scope

    @property
    def largest_number(self) -> int:
        """The largest sequence number of data that it applies to; equality deletes spare rows of their own commit."""
        return self.sequence_number - 1 if self.content == EQUALITY_DELETES else self.sequence_number


def delete_file(entry: Entry, sequence_number: int, spec: PartitionSpec, partition: Hashable | None) -> DeleteFile:
    """
    The delete file of an entry. `partition` is its partition's key, None where that is not known any more: then the
    file may apply to any.
    """
    scope: Scope = None if partition is None else (spec.spec_id, partition)
    if entry.content == EQUALITY_DELETES and is_unpartitioned(spec):
        scope = None
    elif entry.content == POSITION_DELETES and (path := _referenced(entry)) is not None:
        scope = path
    return DeleteFile(file_key(entry.data_file.path), entry.content, sequence_number, scope)


def scopes_of(key: str, spec_id: int, partition: Hashable) -> tuple[Scope, ...]:
    """
    The scopes of delete files that may apply to a data file, given its `file_key` and its partition's key.
    """
    return key, (spec_id, partition), None


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """
    Whether all rows are in one partition of this spec.
    """
    return all(str(field.transform) == "void" for field in spec.fields)


def _referenced(entry: Entry) -> str | None:
    """The data file that all positions are of: by the field for it, or by equal bounds of the column `file_path`."""
    if entry.referenced_data_file is not None:
        return file_key(entry.referenced_data_file)
    lower = entry.data_file.lower_bounds.get(_FILE_PATH)
    if lower is None or lower != entry.data_file.upper_bounds.get(_FILE_PATH):
        return None
    return file_key(lower.decode("utf-8", "replace"))
