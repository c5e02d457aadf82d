"""A slot for tests: a writer of many channels by the contract and nothing else."""

from bookkeeper.contract.names import TxlogName
from tests.support.lake import Lake, Writes


class Slot(Writes):
    """
    One run of a slot; its position is the sequence and the run, so that it never recurs.
    """

    def __init__(self, lake: Lake, name: str = "slot-00", position: bytes | None = None) -> None:
        super().__init__(lake, name)
        self.position = position

    def reaches(self, *keys: str, **offsets: str) -> TxlogName:
        """Publishes one file with these keys, or no file where there are none, which reaches these offsets."""
        sequence = self.name.sequence + 1
        before, self.position = self.position, f"{sequence}.{self.name.incarnation}".encode()
        files = [self.file([*keys], sequence=sequence)] if keys else []
        about = {"position": self.position, "previous_position": before, "offsets": offsets}
        name, data = self.encoded(files, sequence=sequence, **about)
        self.lake.folder.publish(name, data)
        return name


def offsets_of(lake: Lake, slot: str = "slot-00") -> dict[str, str]:
    """
    What the table says of the channels of a slot.
    """
    return dict(lake.view().marks.writer(slot).offsets)
