"""
`verify`: checks the table against its folder and its files. Reads only; `repair` does what its findings name.

Commits may go on meanwhile. So the folder is always listed before the table is loaded, as in a tick, and whatever is
found wrong is checked again against a later load of the table.

Every finding names what is wrong, where, and how bad: `error` means rows are or may be wrong, `warning` means
a person should look, `info` means that the next tick repairs it.
"""

from bookkeeper.commands import verify_folder, verify_table
from bookkeeper.commands.audit import ERROR, INFO, WARNING, Audit, Finding
from bookkeeper.commands.waiting import waiting
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import BookkeeperError, Missing
from bookkeeper.ledger.marks_publisher import MarksPublisher

#: of a head whose files were deleted while they were read
MOST_RELOADS = 5


def verify(audit: Audit) -> list[Finding]:
    """
    All findings, worst first. Raises Retry when table or folder cannot be read.
    """
    found = _checked_now(audit)
    wrong = [finding for finding in found if finding.severity != INFO]
    later = audit.later() if wrong else audit
    if later.view.table.metadata_location != audit.view.table.metadata_location:
        # Files may have been dropped and snapshots expired meanwhile: only what is still wrong counts.
        still = {(finding.what, finding.where) for finding in _checked_now(later)}
        found = [finding for finding in found if finding not in wrong or (finding.what, finding.where) in still]
    return sorted(found, key=lambda finding: (ERROR, WARNING, INFO).index(finding.severity))


def _checked_now(audit: Audit) -> list[Finding]:
    """What is found in a head whose files are there: those of an older one may be expired and deleted meanwhile."""
    for _ in range(MOST_RELOADS):
        try:
            return _checked(audit)
        except BookkeeperError as error:
            now = audit.later().view
            gone = isinstance(error if isinstance(error, Missing) else error.__cause__, Missing)
            if not gone or now.metadata.current_snapshot_id == audit.view.metadata.current_snapshot_id:
                raise
            audit.view = now
            audit.__dict__.pop("removed", None)
    return _checked(audit)


def _checked(audit: Audit) -> list[Finding]:
    audit.read()
    checks = (*verify_table.CHECKS, *verify_folder.CHECKS)
    at_risk = waiting(audit.settings, audit.folder, audit.view.marks, audit.ledger.clock())
    return [finding for check in checks for finding in check(audit)] + [
        Finding(WARNING if soon else INFO, what, where) for soon, what, where in at_risk
    ]


def repair(audit: Audit, findings: list[Finding]) -> int:
    """
    Does what is safe, and nothing else: deletes txlogs that are in, writes marks.json again. Returns how much.
    """
    mendable = [finding for finding in findings if finding.repair]
    leftovers = [TxlogName.parse(finding.where) for finding in mendable if finding.severity == INFO]
    # marks.json first: a starting writer must find a txlog in pending/ or in the marks.
    if any(finding.severity == WARNING for finding in mendable) or leftovers:
        MarksPublisher(audit.ledger, audit.folder).publish(audit.view)
    audit.folder.delete(leftovers)
    return len(mendable)
