"""
Events of a storage as hints: the txlogs among the objects that were created.
"""

from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import NameMismatch
from bookkeeper.stores.events import places


def txlogs(message: str | bytes, bucket: str, pending: str) -> list[TxlogName]:
    """
    The txlogs that a message reports as created in the folder `pending` of this bucket.
    """
    found = []
    for where, key in places(message):
        folder, _, name = key.rpartition("/")
        if where != bucket or folder != pending:
            continue
        try:
            found.append(TxlogName.parse(name))
        except NameMismatch:
            continue
    return found
