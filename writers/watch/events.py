"""
Events of the storage: something was dropped below the prefix. They are hints; what is there, the listing says.
"""

from collections.abc import Callable

from bookkeeper.stores.events import places
from bookkeeper.stores.queues import queue_of
from bookkeeper.stores.received import Received
from bookkeeper.stores.store import Store
from writers.watch.plan import is_hidden

#: that something was dropped, whatever it is
Dropped = Received[str]
Receive = Callable[[Store, str], Dropped]
_SOMETHING = "something"


def receive(store: Store, queue: str) -> Dropped:
    """
    Receives from the queue until it is closed; raises NotPossible where no such queue is known for the storage.
    """
    source, bucket, root = queue_of(store, queue)
    return Received(source, lambda message: dropped(message, bucket, root), queue)


def dropped(message: str | bytes, bucket: str, root: str) -> list[str]:
    """
    One name where a message reports an object below `root` (its keys' beginning) that the watcher would take.
    """
    below = (key[len(root) :] for where, key in places(message) if where == bucket and key.startswith(root))
    return [_SOMETHING] if any(key and not is_hidden(key) for key in below) else []
