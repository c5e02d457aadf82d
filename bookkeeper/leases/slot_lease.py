"""
Leases of slots: which instance reads or serves the channels of a slot.
"""

import os
import socket

from bookkeeper.leases.beside import RenewedBeside
from bookkeeper.leases.lease import Lease, lease_on
from bookkeeper.stores.store import Store

#: of a lease's name in the txlog folder, before and behind the name of the slot
FOLDER, ENDING = "slots/", ".lease"


def slot_lease(store: Store, slot: str) -> Lease:
    """
    The lease of the slot (`bookkeeper.contract.offsets.slot_name`), renewed beside its work; raises StorageUnavailable.
    """
    lease = lease_on(store, lease_name(slot), f"{socket.gethostname()} {os.getpid()}")
    return lease if lease.lasting is None else RenewedBeside(lease, lease.lasting)


def lease_name(slot: str) -> str:
    """
    The name of the slot's lease in its txlog folder.
    """
    return f"{FOLDER}{slot}{ENDING}"
