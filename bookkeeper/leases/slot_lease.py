"""
Leases of slots: which instance reads or serves the channels of a slot.
"""

import os
import re
import socket

from bookkeeper.errors import Missing, Unfit
from bookkeeper.leases.beside import RenewedBeside
from bookkeeper.leases.lease import Lease, lease_on
from bookkeeper.stores.store import Store

#: of a lease's name in the txlog folder, before and behind the name of the slot
FOLDER, ENDING = "slots/", ".lease"
_MOST_BYTES = 2**16
_ADDRESS = re.compile(r"https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_IN_LEASE = re.compile(rf'(?:^|[ "])({_ADDRESS.pattern})(?=[ "\n])')


def slot_lease(store: Store, slot: str, address: str = "") -> Lease:
    """
    The lease of the slot (`bookkeeper.contract.offsets.slot_name`), renewed beside its work; it says the `address` at
    which other instances reach this one. Raises StorageUnavailable.
    """
    lease = lease_on(store, lease_name(slot), f"{socket.gethostname()} {os.getpid()} {address}".strip())
    return lease if lease.lasting is None else RenewedBeside(lease, lease.lasting)


def lease_name(slot: str) -> str:
    """
    The name of the slot's lease in its txlog folder.
    """
    return f"{FOLDER}{slot}{ENDING}"


def owner_of(store: Store, slot: str) -> str:
    """
    The address that the holder of the slot's lease has given; "" where none is there. Raises StorageUnavailable.

    What is read is checked to be a scheme, a host and a port alone, and may be of a holder before.
    """
    try:
        text = store.read(lease_name(slot), _MOST_BYTES)
    except (Missing, Unfit):
        return ""
    found = _IN_LEASE.search(text.decode("utf-8", "replace"))
    return found[1] if found else ""


def is_address(text: str) -> bool:
    """
    Whether it is the address of an instance: `http://HOST:PORT` or `https://HOST:PORT`.
    """
    return _ADDRESS.fullmatch(text) is not None
