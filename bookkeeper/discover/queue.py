"""
A queue to which the storage sends its new objects, as hints.
"""

from collections.abc import Collection

from bookkeeper.contract.names import TxlogName
from bookkeeper.discover.discovery import LOOK, Hints
from bookkeeper.stores.received import Received


class QueueDiscovery(Received[TxlogName]):
    """
    The txlogs of a folder that messages name; LOOK while the queue does not answer, and once after that.
    """

    def hints(self) -> Hints:
        names = self.take()
        return LOOK if names is None else names

    def after(self, found: Collection[TxlogName], asked: Collection[TxlogName] = ()) -> Collection[TxlogName]:
        """No name: each txlog has a message of its own."""
        return ()
