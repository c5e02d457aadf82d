"""
Instances of a source of many channels: each slot is read by the instance that holds its lease, as an object store has
it. A lease lasts for a moment only, so that instances often take slots from each other, and at times read one together.
"""

import time
from datetime import timedelta
from random import Random

from bookkeeper.contract.offsets import slot_name, slot_of
from bookkeeper.errors import BookkeeperError
from bookkeeper.leases.object_lease import PutLease
from bookkeeper.stores.open import open_store
from tests.chaos.processes.ground import Ground, now
from tests.chaos.processes.roles import PAUSE_SECONDS, rows
from writers.publish import pending_monitor
from writers.writer import Writer

SOURCE, SLOTS = "orders", 4
CHANNELS = tuple(f"c{number}" for number in range(12))
LASTING = timedelta(milliseconds=150)
#: how often an instance gives a slot away
GIVEN_AWAY = 0.1


def instance(ground: Ground, who: str) -> None:
    """
    Reads the slots that it gets; a run that fails ends, and the next one goes on where the chain of its slot ends.
    """
    pending_monitor.EVERY = LASTING / 3  # of two that read one slot, the other learns it soon
    (ground.root / "leases").mkdir(exist_ok=True)
    store, dice = open_store(f"file://{ground.root}/leases"), Random(f"{who} {now()}")
    names = [slot_name(SOURCE, number) for number in range(SLOTS)]
    leases = {name: PutLease(store, f"{name}.lease", who, LASTING) for name in names}
    runs = dict[str, Writer]()
    while True:
        for name, lease in leases.items():
            if lease.hold(now()):
                _read(ground, runs, name, dice)
            else:
                runs.pop(name, None)
            if dice.random() < GIVEN_AWAY:
                lease.release()
        time.sleep(PAUSE_SECONDS)


def _read(ground: Ground, runs: dict[str, Writer], name: str, dice: Random) -> None:
    try:
        run = runs[name] if name in runs else runs.setdefault(name, Writer.open(ground.folder, name))
        reached = run.offsets
        chosen = dice.sample(_channels(name), 2)
        _publish(ground, run, {channel: int(reached.get(channel, "0")) + dice.randint(1, 3) for channel in chosen})
    except BookkeeperError as error:
        ground.note("ended", type(error).__name__)
        runs.pop(name, None)


def _channels(name: str) -> list[str]:
    return [channel for channel in CHANNELS if slot_of(SOURCE, channel, SLOTS) == name]


def _publish(ground: Ground, run: Writer, ends: dict[str, int]) -> None:
    """Notes before it how far each channel will be read."""
    reached = run.offsets
    keys = [key for channel, end in ends.items() for key in _keys(channel, int(reached.get(channel, "0")), end)]
    for channel, end in ends.items():
        ground.note("channels", channel, str(end))
    run.write(rows(keys), offsets={channel: str(end) for channel, end in ends.items()})
    run.publish()


def _keys(channel: str, start: int, end: int) -> list[str]:
    return [f"{channel}/{offset}" for offset in range(start + 1, end + 1)]


def ends_of(ground: Ground) -> dict[str, int]:
    """
    How far each channel was read, by any instance, whatever became of that.
    """
    found = dict[str, int]()
    for channel, end in ground.notes("channels"):
        found[channel] = max(found.get(channel, 0), int(end))
    return found


def read_to(ground: Ground, ends: dict[str, int]) -> None:
    """
    New runs of all slots, up to these ends; raises what a run ends by.
    """
    for name in sorted({slot_of(SOURCE, channel, SLOTS) for channel in ends}):
        run = Writer.open(ground.folder, name)
        reached = run.offsets
        left = {
            channel: ends[channel]
            for channel in _channels(name)
            if int(reached.get(channel, "0")) < ends.get(channel, 0)
        }
        if left:
            _publish(ground, run, left)


def keys_to(ends: dict[str, int]) -> list[str]:
    """
    The rows of the channels up to these ends.
    """
    return [key for channel, end in ends.items() for key in _keys(channel, 0, end)]
