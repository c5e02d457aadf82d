"""The most memory that this process takes during a block, whatever the tests before it took."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def memory_within(mib: int) -> Iterator[None]:
    """Asserts that the block raises the resident memory by less than `mib` MiB at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what it is now (proc(5))
    before = _peak_kib()
    yield
    assert (took := _peak_kib() - before) < mib * 2**10, f"{took} KiB"


def _peak_kib() -> int:
    return int(Path("/proc/self/status").read_text("ascii").partition("VmHWM:")[2].split()[0])
