"""
The lease of a table that belongs to another bookkeeper: taken only while that one is away, and given up when it is
back. The two exchange no messages. Like every lease it saves work; correctness does not depend on it.
"""

from datetime import datetime, timedelta

from bookkeeper.leases.lease import Lease


class FailoverLease:
    """
    The lease of a table of another share: taken once it has been free for `grace`, offered back every `offer`.

    An offer lasts `pause`: within it the table's own bookkeeper tries the lease, and finds it free. A crash leaves a
    free lease, or one that ends as its kind does.
    """

    def __init__(self, lease: Lease, grace: timedelta, offer: timedelta, pause: timedelta) -> None:
        self.lease, self.grace, self.offer, self.pause = lease, grace, offer, pause
        self._held_since: datetime | None = None
        self._free_since: datetime | None = None
        self._offered_at: datetime | None = None

    @property
    def offering(self) -> bool:
        """Whether it was released only to offer it back."""
        return self._offered_at is not None

    @property
    def lasting(self) -> timedelta | None:
        """The lease's own `lasting`."""
        return self.lease.lasting

    def hold(self, now: datetime) -> bool:
        if self._held_since is not None:
            return self._keep(now, self._held_since)
        if self._offered_at is not None and abs(now - self._offered_at) < self.pause:
            return False
        if not self.lease.hold(now):
            self._free_since = self._offered_at = None
            return False
        self._free_since = self._free_since or now
        if self._offered_at is None and abs(now - self._free_since) < self.grace:
            # Only a look whether it is free: the table's own bookkeeper, if it starts now, gets it at its next try.
            self.lease.release()
            return False
        self._held_since, self._free_since, self._offered_at = now, None, None
        self.taken()
        return True

    def taken(self) -> None:
        """Called each time the lease was just taken, not where it is kept."""

    def _keep(self, now: datetime, since: datetime) -> bool:
        if abs(now - since) >= self.offer:
            self.let_go(now)
            return False
        held = self.lease.hold(now)
        if not held:
            self._held_since = None
        return held

    def let_go(self, now: datetime) -> None:
        """Releases the lease now, so that the table's own bookkeeper can take it."""
        self.release()
        self._offered_at = now

    def release(self) -> None:
        self._held_since = None
        self.lease.release()
