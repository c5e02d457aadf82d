"""
`bookkeeper once` as a function that a cloud calls: one tick of each table, whatever the event holds.

An event only asks for a tick, so nothing is read from it but the ids of a batch's messages. Two calls at once
are safe: the second finds the lease taken and asks for its event again. Nothing is kept between calls but clients.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bookkeeper.config.load import apart
from bookkeeper.config.settings import Settings
from bookkeeper.errors import StorageUnavailable
from bookkeeper.serve.open import opener
from bookkeeper.serve.tables import once, slots_of


class NotDone(StorageUnavailable):
    """Not every table had its tick: the same event has to come again."""


def function(settings: Settings, clock: Callable[[], datetime]) -> Callable[..., dict[str, Any]]:
    """
    The handler `(event, context)` for these settings.

    For an SQS batch it answers which messages have to come again, all of them or none; otherwise it raises NotDone.
    """

    def handle(event: Any, context: Any = None) -> dict[str, Any]:
        late = _late(settings, clock)
        messages = _messages(event)
        if late and not messages:
            raise NotDone("; ".join(f"{table}: {why}" for table, why in late.items()))
        failed = [{"itemIdentifier": message} for message in messages] if late else []
        return {"batchItemFailures": failed, "late": late}

    return handle


def _late(settings: Settings, clock: Callable[[], datetime]) -> dict[str, str]:
    """The tables that had no tick, and why."""
    slots = slots_of(settings, apart([*settings.tables.values()]), opener(settings.bookkeeper, clock))
    done = zip(slots, once(slots, settings.bookkeeper, clock), strict=True)
    return {slot.table: slot.trouble or "another bookkeeper is at work" for slot, result in done if result is None}


def _messages(event: Any) -> list[str]:
    records = event.get("Records", ()) if isinstance(event, Mapping) else ()
    return [str(record["messageId"]) for record in records if "messageId" in record]
