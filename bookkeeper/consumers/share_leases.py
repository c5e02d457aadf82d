"""
The leases of a group's shares: the member that a share belongs to asks for it, the one that borrowed it gives it back.

A request is an object beside the lease, `<share>.wanted`, written anew while its member waits. Like the leases it saves
time only: a member that hears no request offers a borrowed share every minute. A crash leaves a request behind, and
the next borrower of the share ignores it: only a request that is written after that counts.
"""

from datetime import datetime, timedelta

from bookkeeper.config.share import TRIES
from bookkeeper.errors import Missing, Unfit
from bookkeeper.leases.failover import FailoverLease
from bookkeeper.leases.lease import Lease, lease_on
from bookkeeper.stores.store import Store

#: how long a share must be free before another member borrows it, and how often it is offered back
GRACE, OFFER = timedelta(seconds=3), timedelta(minutes=1)
#: how often a request is written while its member waits, and looked for by the one that borrowed the share
ASK_EVERY, LOOK_EVERY = timedelta(seconds=3), timedelta(seconds=2)
WANTED = ".wanted"
_BYTES = 2**10


class Request:
    """The request for a share, in the txlog folder; `holder` is written into it."""

    def __init__(self, folder: Store, key: str, holder: str) -> None:
        self._folder, self._key, self._holder = folder, key, holder
        self._asked_at: datetime | None = None
        self._looked_at: datetime | None = None
        self._known: bytes | None = None

    def ask(self, now: datetime) -> None:
        """Writes it, unless that is done; raises StorageUnavailable."""
        if _is_due(self._asked_at, now, ASK_EVERY):
            self._folder.replace(self._key, f"{self._holder} at {now.isoformat()}\n".encode())
            self._asked_at = now

    def withdraw(self) -> None:
        """Empties it, if this member has written it; raises StorageUnavailable."""
        if self._asked_at is not None:
            self._folder.replace(self._key, b"")
            self._asked_at = None

    def is_new(self, now: datetime) -> bool:
        """Whether the other member has written it since this one looked last; raises StorageUnavailable."""
        if not _is_due(self._looked_at, now, LOOK_EVERY):
            return False
        before, self._known, self._looked_at = self._known, self._read(), now
        return bool(self._known) and before is not None and self._known != before

    def pass_over(self) -> None:
        """What is written until the next look is not new."""
        self._known = self._looked_at = None

    def _read(self) -> bytes:
        try:
            return self._folder.read(self._key, _BYTES)
        except (Missing, Unfit):
            return b""


def _is_due(last: datetime | None, now: datetime, every: timedelta) -> bool:
    return last is None or abs(now - last) >= every


class OwnShare:
    """The lease of a member's own share: while another member has it, it asks for it."""

    offering = False

    def __init__(self, lease: Lease, request: Request) -> None:
        self._lease, self._request = lease, request

    @property
    def lasting(self) -> timedelta | None:
        """As long as the lease itself."""
        return self._lease.lasting

    def hold(self, now: datetime) -> bool:
        if self._lease.hold(now):
            self._request.withdraw()
            return True
        self._request.ask(now)
        return False

    def release(self) -> None:
        self._lease.release()
        self._request.withdraw()


class BorrowedShare(FailoverLease):
    """The lease of another member's share: borrowed while that one is away, given back when it asks."""

    def __init__(self, lease: Lease, request: Request) -> None:
        super().__init__(lease, GRACE, OFFER, 2 * TRIES)
        self._request = request

    def taken(self) -> None:
        self._request.pass_over()  # it may be of a member that died while the share was not borrowed

    def hold(self, now: datetime) -> bool:
        held = super().hold(now)
        if held and self._request.is_new(now):
            self.let_go(now)
            return False
        return held


def share_lease(folder: Store, name: str, holder: str, is_own: bool) -> Lease:
    """
    The lease of the share `name`, its key without an ending; `holder` is written into it and its request.
    """
    lease, request = lease_on(folder, f"{name}.lease", holder), Request(folder, f"{name}{WANTED}", holder)
    return OwnShare(lease, request) if is_own else BorrowedShare(lease, request)
