"""A storage that takes about one write a second of one object: commits are further apart, and say so."""

from typing import Any

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.tick.tick import Bookkeeper
from tests.support.lake import Lake, Writes


class OnGoogle:
    """The lake's store under a name of Google's."""

    def __init__(self, store: Any) -> None:
        self.store, self.url = store, "gs://bucket/folder"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def test_on_google_cloud_storage_commits_are_two_seconds_apart_and_lose_nothing(
    lake: Lake, writer: Writes, caplog: Any
) -> None:
    plain = lake.book()
    book = Bookkeeper(lake.settings, Folder(OnGoogle(plain.folder.store)), plain.ledger, store=lake.store)  # type: ignore[arg-type]
    for number in range(8):
        writer.publish(f"a{number}")
        lake.tick(book, seconds=0.5)
    assert len(lake.operations()) == 2
    lake.tick(book, seconds=2)
    assert len(lake.keys()) == 8 and len(lake.operations()) == 3
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in said] == ["commits slowed down"]
    assert "one write a second" in said[0].cause and "every" in said[0].hint


def test_elsewhere_each_tick_commits(lake: Lake, writer: Writes) -> None:
    book = lake.book()
    for number in range(4):
        writer.publish(f"a{number}")
        lake.tick(book, seconds=0.5)
    assert len(lake.operations()) == 4
