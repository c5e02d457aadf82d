"""
letters/SLOT.json in the txlog folder of a table: which messages a slot of `writer kafka` has put aside as dead letters,
and the run that may add some. What is in it is its writer's (writers/kafka/verdicts.py).
"""

import json
from collections.abc import Iterator
from contextlib import suppress

from bookkeeper.contract.offsets import is_slot
from bookkeeper.errors import Changed, NotPossible, Unfit
from bookkeeper.format import json_text
from bookkeeper.stores.store import Store

FOLDER = "letters/"
MOST_BYTES = 2**24
_TRIES = 10


def key_of(slot: str) -> str:
    """
    The key of a slot's object in the txlog folder.
    """
    return f"{FOLDER}{slot}.json"


def slots_with_verdicts(store: Store) -> Iterator[str]:
    """
    The slots that have such an object; raises StorageUnavailable.
    """
    for item in store.list(FOLDER):
        name = item.key.removeprefix(FOLDER)
        if name.endswith(".json") and "/" not in name:
            yield name.removesuffix(".json")


def claim(store: Store, source: str, run: str) -> None:
    """
    Takes those of all slots of this source from the runs that have them: each is fenced before it adds more.

    Raises NotPossible, StorageUnavailable: then some are taken, and it may be called again.
    """
    for slot in slots_with_verdicts(store):
        if is_slot(source, slot):
            _claim(store, key_of(slot), run)


def _claim(store: Store, key: str, run: str) -> None:
    for _ in range(_TRIES):
        with suppress(Changed):
            try:
                data, tag = store.read_tagged(key, MOST_BYTES)
                found = {**json_text.loads(data), "run": run}
            except (Unfit, ValueError, TypeError) as exc:
                hint = "Bring it back from an earlier version or a backup."
                raise NotPossible(f"{key} is not readable: {exc!r:.200}", hint=hint) from exc
            store.replace(key, json.dumps(found).encode(), tag)
            return
    raise NotPossible(f"{key} changes all the time", hint="Stop all instances of the source.")
