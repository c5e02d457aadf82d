"""Two real daemons on twenty tables: each works on its share, takes the other's when that one dies, gives it back."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookkeeper.config.share import share_of
from tests.serve.daemons import Tables
from tests.support.configured import program
from tests.support.crew import Crew, Said

NAMES = [f"t{number:02d}" for number in range(20)]
MINE = {name: {f"{share_of(f'demo.{name}', 2)}/2"} for name in NAMES}
FIRST, SECOND = "1/2", "2/2"
#: far more than it takes: without a bound a broken daemon would be waited for until the run ends
ROUNDS = 100


class Shared(Tables):
    """The tables, and the daemons that share them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, *NAMES)
        self.said, self.rounds, self.crew = Said(), 0, Crew({}, root)

    def start(self, share: str) -> None:
        path = self.configure(file=f"{share[0]}.toml", share=share, failover_after="500ms", offer_every="1s")
        self.crew.start(share[0], program("bookkeeper", path), self.said)

    def round(self) -> dict[str, set[str]]:
        """One txlog for each table; which daemon committed it."""
        key, shares_of = f"{self.rounds:04d}", dict[str, set[str]]()
        self.rounds += 1
        for name in NAMES:
            self.publish(name, key)
        while len(shares_of) < len(NAMES):
            number, said = self.said.next()
            assert said.get("action") not in ("ended", "defect"), said
            if said.get("action") == "commit":
                shares_of[said["table"]] = {f"{number}/2"}
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
    with made.crew:
        yield made


def test_two_daemons_split_the_tables_follow_each_other_and_give_back_and_every_row_is_in_once(shared: Shared) -> None:
    shared.start(FIRST)
    shared.start(SECOND)
    shared.until(lambda shares_of: shares_of == MINE)
    assert {share for shares in MINE.values() for share in shares} == {FIRST, SECOND}

    shared.crew.kill(FIRST[0])
    shared.said.until(action="ended")
    shared.until(lambda shares_of: all(shares == {SECOND} for shares in shares_of.values()))

    shared.start(FIRST)
    shared.until(lambda shares_of: shares_of == MINE)

    keys = [f"{number:04d}" for number in range(shared.rounds)]
    for lake in shared.lakes.values():
        assert lake.keys() == keys and (lake.pending(), lake.rejected()) == ([], {})
