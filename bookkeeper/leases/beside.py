"""
Renewal of a lease beside the tick: it is one request or two, and no row waits for them.

The lease itself is taken, and asked for again after trouble, in line. A renewal begins only with a `hold`: a tick that
hangs, and asks for nothing, loses its lease as it always did. A crash leaves the lease to end as its kind does.
"""

from concurrent.futures import Future, wait
from datetime import datetime, timedelta

from bookkeeper.leases.lease import Lease
from bookkeeper.threads import Threads

#: of all leases of this process: a storage that does not answer keeps no other lease waiting
RENEWALS = Threads("lease renewal")


class RenewedBeside:
    """
    A lease that lasts for a while, renewed at a third of that; what a renewal met is the outcome of the next `hold`.

    To be used by one thread. A renewal is one `hold` of the lease in a thread of RENEWALS.
    """

    def __init__(self, lease: Lease, lasting: timedelta) -> None:
        self.lease, self.lasting = lease, lasting
        #: the time of the last `hold` that is known to have succeeded; None after any other outcome
        self._held_at: datetime | None = None
        #: the renewal whose outcome was not taken yet, and the time of its `hold`
        self._renewal: tuple[Future[bool], datetime] | None = None

    @property
    def offering(self) -> bool:
        """The lease's own `offering`."""
        return self.lease.offering

    def hold(self, now: datetime) -> bool:
        if self._renewal is not None:
            if not self._renewal[0].done() and self._is_younger(self.lasting, now):
                return True
            if not self._ended():
                return False
        if not self._is_younger(self.lasting, now):
            self._held_at = None
            self._held_at = now if self.lease.hold(now) else None
            return self._held_at is not None
        if not self._is_younger(self.lasting / 3, now):
            self._renewal = RENEWALS.submit(self.lease.hold, now), now
        return True

    def _is_younger(self, age: timedelta, now: datetime) -> bool:
        return self._held_at is not None and abs(now - self._held_at) < age

    def _ended(self) -> bool:
        """Waits for the renewal and takes its outcome; raises what asking raised."""
        assert self._renewal is not None
        (renewal, at), self._renewal, self._held_at = self._renewal, None, None
        self._held_at = at if renewal.result() else None
        return self._held_at is not None

    def release(self) -> None:
        renewal, self._renewal, self._held_at = self._renewal, None, None
        if renewal is not None:
            wait([renewal[0]])  # or it would take again what is given back here
        self.lease.release()
