"""
A computed fold: what it takes out of the table and what it puts in, for a commit on whatever head the table has then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bookkeeper.contract.delete_scope import DeleteFile
from bookkeeper.format.entries import Entry
from bookkeeper.format.records import Records, of_entries
from bookkeeper.ledger.view import View
from bookkeeper.manifests.header import Header


@dataclass(frozen=True, slots=True)
class FoldedData:
    """What a fold makes of one data file that has dead rows."""

    #: its data sequence number, and the manifest that lists it
    sequence_number: int
    manifest: str
    spec_id: int
    #: its new position delete file; None: all its rows are dead, and the data file goes
    positions: Entry | None
    #: position delete files for this data file alone, whose positions were read: the new one replaces them
    predecessors: tuple[DeleteFile, ...] = ()


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """
    A fold whose position delete files are durable; nothing names them until it is committed.

    A plan that is never committed leaves them to the orphan sweep. Data files are known by `file_key`.
    """

    table_uuid: str
    #: before any of its files was written
    begun: datetime
    #: the equality delete files that go
    folded: Sequence[DeleteFile]
    files: Mapping[str, FoldedData]
    #: every data file that a folded one may apply to, with its data sequence number
    examined: Mapping[str, int]
    #: the data manifests that were read
    manifests: frozenset[str]

    @property
    def rows(self) -> int:
        """Positions that its new files hold."""
        return sum(item.positions.data_file.record_count for item in self.files.values() if item.positions is not None)


@dataclass(frozen=True, slots=True)
class PositionGroup:
    """New position delete files of one partition spec."""

    schema_id: int
    spec_id: int
    entries: Sequence[Entry]

    def records(self, header: Header) -> Records:
        """All their records."""
        return of_entries(self.entries, header.encode_blocks)


def grouped_positions(view: View, added: Sequence[tuple[int, Entry]]) -> list[PositionGroup]:
    """
    New position delete files, each with its spec's id, grouped by that.
    """
    groups = list[PositionGroup]()
    for spec_id in sorted({spec_id for spec_id, _ in added}):
        schema = view.schema_for(spec_id)
        assert schema is not None
        entries = [entry for its_spec, entry in added if its_spec == spec_id]
        groups.append(PositionGroup(schema.schema_id, spec_id, entries))
    return groups
