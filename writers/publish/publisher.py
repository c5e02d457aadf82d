"""
Sends the txlogs of one run, in sequence: n+1 only after n is confirmed, every retry the same bytes.
"""

from functools import partial

from bookkeeper.core import txlog
from bookkeeper.core.folder import Folder
from bookkeeper.core.names import TxlogName
from bookkeeper.errors import AlreadyExists, BookkeeperError, Fenced, UnknownOutcome
from bookkeeper.format.entries import DataFile
from writers.files.write_spec import WriteSpec
from writers.retry import Wait, retry


class Publisher:
    """
    Owns the run's sequence and its chain of positions; after an unknown outcome it sends nothing more.
    """

    def __init__(self, folder: Folder, writer: str, incarnation: str, position: bytes | None, wait: Wait) -> None:
        self.position = position
        self.unsure: TxlogName | None = None
        self._folder, self._wait = folder, wait
        self._last = TxlogName(writer, incarnation, 0)

    @property
    def sequence(self) -> int:
        """The sequence of the next txlog."""
        return self._last.sequence + 1

    def check(self) -> None:
        """Raises UnknownOutcome when nothing more may be sent."""
        if self.unsure is not None:
            raise UnknownOutcome(f"it is not known whether {self.unsure} was published")

    def send(self, shape: WriteSpec, files: tuple[DataFile, ...], position: bytes | None, now_ms: int) -> TxlogName:
        """
        Publish one txlog of `files`; durable when it returns. Raises Fenced, UnknownOutcome.
        """
        self.check()
        name = self._last.at(self.sequence)
        previous = None if position is None else self.position
        envelope = txlog.Envelope(name, shape.card.table_uuid, now_ms, position, previous)
        self._create(name, txlog.encode(envelope, shape.schema, shape.card.spec, files))
        self._last = name
        self.position = self.position if position is None else position
        return name

    def _create(self, name: TxlogName, data: bytes) -> None:
        self.unsure = name
        try:
            retry(partial(self._folder.publish, name, data), self._wait)
        except AlreadyExists as exc:
            raise Fenced(f"somebody else published {name}") from exc
        except BookkeeperError as exc:
            raise UnknownOutcome(f"{name}: {exc}") from exc
        self.unsure = None
