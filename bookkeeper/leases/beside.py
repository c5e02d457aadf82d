"""
Renewal of a lease beside the tick: it is one request or two, and no row waits for them.

The lease itself is taken, and asked for again after trouble, in line. A renewal begins only with a `hold`: a tick that
hangs, and asks for nothing, loses its lease as it always did. A crash leaves the lease to end as its kind does.
"""

import threading
from datetime import datetime, timedelta

from bookkeeper.leases.lease import Lease


class Renewal:
    """One `hold` of a lease in a thread of its own."""

    def __init__(self, lease: Lease, now: datetime) -> None:
        self.lease, self.now, self.held = lease, now, False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lease renewal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.held = self.lease.hold(self.now)
        except BaseException as error:  # noqa: BLE001 - it is raised again by the thread that asks
            self.error = error

    @property
    def under_way(self) -> bool:
        """Whether it has no outcome yet."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Waits until it has one."""
        self._thread.join()

    def outcome(self) -> bool:
        """Waits for it; whether the lease is held. Raises what asking raised."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.held


class RenewedBeside:
    """
    A lease that lasts for a while, renewed at a third of that; what a renewal met is the outcome of the next `hold`.

    To be used by one thread.
    """

    def __init__(self, lease: Lease, lasting: timedelta) -> None:
        self.lease, self.lasting = lease, lasting
        #: the time of the last `hold` that is known to have succeeded; None after any other outcome
        self._held_at: datetime | None = None
        self._renewal: Renewal | None = None

    @property
    def offering(self) -> bool:
        """As the lease itself."""
        return self.lease.offering

    def hold(self, now: datetime) -> bool:
        if self._renewal is not None:
            if self._renewal.under_way and self._is_younger(self.lasting, now):
                return True
            if not self._ended():
                return False
        if not self._is_younger(self.lasting, now):
            self._held_at = None
            self._held_at = now if self.lease.hold(now) else None
            return self._held_at is not None
        if not self._is_younger(self.lasting / 3, now):
            self._renewal = Renewal(self.lease, now)
        return True

    def _is_younger(self, age: timedelta, now: datetime) -> bool:
        return self._held_at is not None and abs(now - self._held_at) < age

    def _ended(self) -> bool:
        """Takes the outcome of the renewal."""
        renewal, self._renewal, self._held_at = self._renewal, None, None
        assert renewal is not None
        self._held_at = renewal.now if renewal.outcome() else None
        return self._held_at is not None

    def release(self) -> None:
        renewal, self._renewal, self._held_at = self._renewal, None, None
        if renewal is not None:
            renewal.wait()  # or it would take again what is given back here
        self.lease.release()
