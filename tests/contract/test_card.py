"""card.json: what a writer must know, refused when it is not whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.contract import card as cards
from bookkeeper.contract.card import Card, dumps, loads
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import WrongFolder
from bookkeeper.stores.local import LocalStore
from tests.support.cards import card

GOOD = json.loads(dumps(card()))


def test_a_card_is_read_as_it_was_written() -> None:
    assert loads(dumps(card(metrics={"default": "full"}))) == card(metrics={"default": "full"})


def test_equal_cards_are_equal_bytes() -> None:
    assert dumps(card()) == dumps(card(metrics={}))


def test_a_card_gives_its_schema_and_the_default_spec() -> None:
    changed = card(specs=(*card().specs, {"spec-id": 7, "fields": []}), spec_id=7)
    assert changed.schema.column_names == ["id"]
    assert changed.spec.spec_id == 7


def test_a_card_is_json_that_a_person_can_read() -> None:
    assert GOOD["version"] == 1
    assert GOOD.keys() == {
        "version", "table", "table-uuid", "folder", "location", "data-path", "schema", "specs", "spec-id", "sort-order",
        "file-format", "compression", "target-file-size", "roll-after-ms", "pending-limit", "orphan-age-ms", "metrics",
    }  # fmt: skip


def test_a_key_that_a_later_version_adds_is_passed_over() -> None:
    assert loads(json.dumps(GOOD | {"new": 1}).encode()) == card()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b"[" * 100_000, b"\xff"])
def test_what_is_no_card_is_refused(data: bytes) -> None:
    with pytest.raises(WrongFolder, match="not readable"):
        loads(data)


@pytest.mark.parametrize("gone", sorted(GOOD))
def test_a_card_that_lacks_anything_is_refused(gone: str) -> None:
    with pytest.raises(WrongFolder):
        loads(json.dumps({key: value for key, value in GOOD.items() if key != gone}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"table": 1},
        {"pending-limit": "1000"},
        {"pending-limit": True},
        {"specs": None},
        {"specs": []},
        {"specs": [{}]},
        {"spec-id": 9},
        {"schema": []},
        {"schema": {"type": "struct", "fields": [{"id": 1}]}},
        {"metrics": []},
    ],
)
def test_a_card_with_a_value_of_the_wrong_kind_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WrongFolder, match="not readable"):
        loads(json.dumps(GOOD | change).encode())


def test_a_card_of_another_version_asks_for_an_upgrade() -> None:
    with pytest.raises(WrongFolder, match="has version 2") as refused:
        loads(json.dumps(GOOD | {"version": 2}).encode())
    assert "Upgrade" in refused.value.hint


def test_a_card_that_is_compared_again_is_not_encoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = list[Card]()

    def counted(given: Card) -> bytes:
        encoded.append(given)
        return dumps(given)

    monkeypatch.setattr(cards, "dumps", counted)
    folder = Folder(LocalStore(str(tmp_path)), makes=True)
    assert [folder.write_card(card()) for _ in range(3)] == [True, False, False]
    assert folder.write_card(card(pending_limit=7))
    assert Folder(LocalStore(str(tmp_path))).card() == card(pending_limit=7)
    assert [folder.write_card(card()), folder.write_card(card())] == [True, False]
    assert len(encoded) == 3


def test_the_same_bytes_are_checked_once() -> None:
    data = dumps(card(pending_limit=11))
    assert loads(data) is loads(bytes(bytearray(data)))
    assert loads(data) is not loads(dumps(card(pending_limit=12)))
