"""Keys that a catalog hands out: when it is asked for new ones, by which thread, and what happens when it has none."""

import logging
import threading
from collections.abc import Callable

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores import handed_out
from bookkeeper.stores.handed_out import PAUSE, PAUSE_AFTER_REFUSAL, Keys, TableKeys
from tests.servers.handing_out import Now

AT = "s3://lake/t/data/a"


class Catalog:
    """Hands out keys of 60 s for one prefix; `fails` instead while that is set."""

    def __init__(self) -> None:
        self.now, self.asked, self.fails, self.same = Now(1000.0), 0, False, False
        self.during: Callable[[], None] = lambda: None

    def keys(self, jitter: float = 1.0) -> TableKeys:
        """The keys of a table that was loaded once."""
        self.table = TableKeys("demo.t", self.ask, lambda least, most: jitter)
        self.hand_out()
        return self.table

    def ask(self) -> None:
        self.asked += 1
        self.during()
        if self.fails:
            raise ConnectionError("the text has secret-of-0001")
        if not self.same:
            self.hand_out()

    def hand_out(self) -> None:
        """As a load of the table does."""
        ends = str(int((self.now.time() + 60) * 1000))
        self.table.take({"s3://lake/t": {"s3.access-key-id": str(self.asked), "s3.session-token-expires-at-ms": ends}})


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog by a clock that stands."""
    made = Catalog()
    monkeypatch.setattr(handed_out, "time", made.now)
    return made


def _fresh(keys: TableKeys) -> Keys:
    found = keys.fresh(AT)
    assert found is not None
    return found


def test_the_catalog_is_asked_at_half_of_the_life_and_a_little_earlier_by_others(catalog: Catalog) -> None:
    keys = catalog.keys(jitter=0.8)
    catalog.now.seconds += 23.9
    assert (_fresh(keys).options["s3.access-key-id"], catalog.asked) == ("0", 0)
    catalog.now.seconds += 0.2
    assert (_fresh(keys).options["s3.access-key-id"], catalog.asked) == ("1", 1)
    assert (_fresh(keys).options["s3.access-key-id"], catalog.asked) == ("1", 1)


def test_keys_that_are_handed_out_again_are_no_younger_for_that(catalog: Catalog) -> None:
    keys = catalog.keys()
    catalog.same = True
    catalog.now.seconds += 31
    before = keys.at(AT)
    assert before is not None
    keys.take({before.prefix: dict(before.options)})
    assert keys.at(AT) is before and _fresh(keys) is before and catalog.asked == 1
    assert _fresh(keys) is before and catalog.asked == 1
    catalog.now.seconds += PAUSE
    assert _fresh(keys) is before and catalog.asked == 2


def test_while_the_catalog_is_away_keys_are_used_until_they_end_and_not_longer(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keys = catalog.keys()
    catalog.fails = True
    catalog.now.seconds += 59.9
    assert _fresh(keys).options["s3.access-key-id"] == "0"
    catalog.now.seconds += 0.1
    with pytest.raises(StorageUnavailable, match=r"demo\.t have ended"):
        keys.fresh(AT)
    assert "secret" not in caplog.text + repr([vars(record) for record in caplog.records]) and caplog.records
    catalog.fails = False
    catalog.now.seconds += PAUSE
    assert _fresh(keys).options["s3.access-key-id"] == str(catalog.asked)


def test_one_thread_asks_and_the_others_go_on(catalog: Catalog) -> None:
    keys, found = catalog.keys(), list[Keys]()
    catalog.now.seconds += 31

    def meanwhile() -> None:
        thread = threading.Thread(target=lambda: found.append(_fresh(keys)))
        thread.start()
        thread.join(10)

    catalog.during = meanwhile
    assert _fresh(keys).options["s3.access-key-id"] == "1"
    assert [one.options["s3.access-key-id"] for one in found] == ["0"] and catalog.asked == 1


def test_a_refusal_asks_once_and_a_missing_right_does_not_ask_for_each_request(catalog: Catalog) -> None:
    keys = catalog.keys()
    first = _fresh(keys)
    assert keys.fresh_after_refusal(AT, first) and catalog.asked == 1
    assert keys.fresh_after_refusal(AT, first) and catalog.asked == 1  # others renewed them meanwhile
    second = _fresh(keys)
    assert not keys.fresh_after_refusal(AT, second) and catalog.asked == 1
    catalog.now.seconds += PAUSE_AFTER_REFUSAL
    assert keys.fresh_after_refusal(AT, _fresh(keys)) and catalog.asked > 1


@pytest.mark.parametrize("end", ["", "soon", "-1", "9" * 400, "²", "None"])
def test_an_end_that_is_no_number_is_none(catalog: Catalog, end: str) -> None:
    keys = catalog.keys()
    keys.take({"s3://lake/t": {"s3.access-key-id": "a", "s3.session-token-expires-at-ms": end}})
    catalog.now.seconds += 10**6
    assert _fresh(keys).options["s3.access-key-id"] == "a" and catalog.asked == 0


def test_the_longest_prefix_counts_and_no_key_is_shown(catalog: Catalog) -> None:
    keys = catalog.keys()
    keys.take({place: {"s3.access-key-id": place, "s3.secret-access-key": "hush"} for place in ("s3://lake/t/", AT)})
    assert [getattr(keys.at(url), "prefix", None) for url in (AT + "/b", "s3://lake/t/b", "s3://lake/b")] == [
        AT,
        "s3://lake/t/",
        None,
    ]
    assert "hush" not in repr(keys.at(AT)) and "s3.secret-access-key" not in _fresh(keys).settings
