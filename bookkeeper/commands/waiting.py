"""
Txlogs that wait where a service of the catalog deletes what no snapshot names: of `verify`.
"""

from collections.abc import Iterator
from datetime import datetime

from bookkeeper.config.maintained import is_by_catalog
from bookkeeper.config.settings import Table
from bookkeeper.config.units import format_duration
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.txlog_folder import Folder


def waiting(settings: Table, folder: Folder, marks: Marks, now: datetime) -> Iterator[tuple[bool, str, str]]:
    """
    That there is such a service, and each txlog that has waited for half of its age: whether it is a
    risk, what, where.
    """
    if not is_by_catalog(settings):
        return
    age, half = settings.service.orphan_age, settings.service.orphan_age / 2
    what = "the catalog's service maintains the table: it deletes files that no snapshot names after"
    yield False, f"{what} {format_duration(age)}", settings.identifier
    for place, found in (("pending", folder.pending()), ("rejected", folder.rejected())):
        for item in found:
            if item.modified < now - half and not marks.is_in(item.name):
                since = f"the txlog has been {place} for over {format_duration(half)}"
                yield True, f"{since}; after {format_duration(age)} its files may go", str(item.name)
