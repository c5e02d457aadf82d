"""
A run of a writer that goes on in another process: one process gives its task out, another one takes the results.

What a crash leaves: nothing that a run that is not handed over does not leave. Where two processes go on with one run,
both have a txlog of the same name, and the storage takes one of them: the other process gets Fenced.
"""

from dataclasses import dataclass, field
from datetime import datetime

from bookkeeper.contract.offsets import Offsets
from writers.tasks.task import Task


@dataclass(frozen=True)
class Handover:
    """A run that waits for the results of its task; can be pickled. `Writer.hand_over` makes it."""

    task: Task
    #: the writer's position before the txlog of the task
    position: bytes | None
    #: the files of the task are as old as this, at most
    since: datetime
    #: what the channels of a slot have reached there
    offsets: Offsets = field(default_factory=dict)
