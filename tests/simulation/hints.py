"""
The queue to which the simulated storage reports its new objects, as S3 does: at least once, in no order, some never.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from bookkeeper.discover.events import txlogs
from bookkeeper.discover.queue import QueueDiscovery
from tests.simulation.schedule import READS, Call, Scheduler

VISIBLE_AGAIN = timedelta(seconds=30)
LOST, TWICE, OTHERS, MOST = 0.15, 0.05, 0.1, 10


@dataclass
class Message:
    """One message: its text, and from when on it is given to whoever asks."""

    text: str
    visible: datetime


@dataclass
class Queue:
    """Implements Source for each bookkeeper that has it."""

    scheduler: Scheduler
    bucket: str
    folder: str
    messages: list[Message] = field(default_factory=list)
    #: whether each message arrives, once
    sound: bool = False

    def created(self, location: str) -> None:
        """The storage has a new object; the message about it may be lost."""
        dice, key = self.scheduler.dice, location.removeprefix(f"s3://{self.bucket}/")
        is_txlog = "/pending/" in key
        if not self.sound and dice.random() < (LOST if is_txlog else 1 - OTHERS):
            self.scheduler.counts["hints lost"] += is_txlog
            return
        event = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": self.bucket}, "object": {"key": key}}}
        for _ in range(2 if not self.sound and dice.random() < TWICE else 1):
            self.messages.append(Message(json.dumps({"Records": [event]}), self.scheduler.now))

    def receive(self) -> Sequence[tuple[str, Any]]:
        def act() -> list[Message]:
            now = self.scheduler.now
            found = [item for item in self.messages if item.visible <= now][:MOST]
            for item in found:
                item.visible = now + VISIBLE_AGAIN
            return found

        found = self.scheduler.call(Call("receive", "queue", READS), act, OSError)
        if not found:
            self.scheduler.leave()  # a long poll
        return [(item.text, item) for item in found]

    def done(self, given: Sequence[Any]) -> None:
        def act() -> None:
            self.messages = [item for item in self.messages if not any(item is one for one in given)]
            self.scheduler.counts["hints received"] += len(given)

        self.scheduler.call(Call("done", "queue", READS), act, OSError)

    def discovery(self) -> QueueDiscovery:
        """For one bookkeeper."""
        return QueueDiscovery(self, lambda text: txlogs(text, self.bucket, f"{self.folder}/pending"), "sqs://hints")
