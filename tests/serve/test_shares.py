"""Two real daemons on twenty tables: each works on its share, takes the other's when that one dies, gives it back."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookkeeper.config.share import share_of
from tests.serve.daemons import Daemon, Said, Tables

NAMES = [f"t{number:02d}" for number in range(20)]
MINE = {name: {f"{share_of(f'demo.{name}', 2)}/2"} for name in NAMES}
FIRST, SECOND = "1/2", "2/2"
#: far more than it takes: without a bound a broken daemon would be waited for until the run ends
ROUNDS = 100


class Shared(Tables):
    """The tables, and the daemons that share them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, *NAMES)
        self.said, self.rounds, self.daemons = Said(), 0, dict[str, Daemon]()

    def start(self, share: str) -> None:
        path = self.configure(f"{share[0]}.toml", share=share, failover_after="500ms", offer_every="1s")
        self.daemons[share] = Daemon(path, self.said, share)

    def round(self) -> dict[str, set[str]]:
        """One txlog for each table; which daemon committed it."""
        key, shares_of = f"{self.rounds:04d}", dict[str, set[str]]()
        self.rounds += 1
        for name in NAMES:
            self.publish(name, key)
        while len(shares_of) < len(NAMES):
            share, said = self.said.next()
            assert said.get("action") not in ("ended", "defect"), said
            if said.get("action") == "commit":
                shares_of[said["table"]] = {share}
        return shares_of

    def until(self, what: Callable[[dict[str, set[str]]], bool]) -> None:
        """Rounds until the tables are shared like this."""
        for _ in range(ROUNDS):
            if what(found := self.round()):
                return
        raise AssertionError(f"after {ROUNDS} rounds it was {found}")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path)
    yield made
    for daemon in made.daemons.values():
        daemon.end()


def test_two_daemons_split_the_tables_follow_each_other_and_give_back_and_every_row_is_in_once(shared: Shared) -> None:
    shared.start(FIRST)
    shared.start(SECOND)
    shared.until(lambda shares_of: shares_of == MINE)
    assert {share for shares in MINE.values() for share in shares} == {FIRST, SECOND}

    killed = shared.daemons.pop(FIRST)
    killed.signal(signal.SIGKILL)
    shared.said.until(action="ended")
    killed.end()
    shared.until(lambda shares_of: all(shares == {SECOND} for shares in shares_of.values()))

    shared.start(FIRST)
    shared.until(lambda shares_of: shares_of == MINE)

    keys = [f"{number:04d}" for number in range(shared.rounds)]
    for lake in shared.lakes.values():
        assert lake.keys() == keys and (lake.pending(), lake.rejected()) == ([], {})
