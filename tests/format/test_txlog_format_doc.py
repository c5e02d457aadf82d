"""docs/maintain/txlog-format.md says what the code does: its examples are read by it, its tables name what is there."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from bookkeeper import errors
from bookkeeper.config.settings import Table
from bookkeeper.contract import card as cards
from bookkeeper.contract import marks, marks_json, names, txlog
from bookkeeper.contract import txlog_folder as folder
from bookkeeper.format import avro, decoder, layout
from bookkeeper.stores.open import open_store
from tests.golden import annotate
from tests.golden.contents import EVENTS, FOLDER
from tests.support.txlogs import data_file

TEXT = annotate.DOC.read_text("utf-8")
EXAMPLES: list[dict[str, Any]] = [
    json.loads(block) for block in re.findall(r"```json\n(\{\n \".*?)```", TEXT, re.DOTALL)
]


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_generated_parts_are_fresh() -> None:
    assert annotate.renewed(TEXT) == TEXT, "docs/maintain/txlog-format.md is stale: python -m tests.golden.annotate"


def test_the_example_card_is_a_card() -> None:
    card = cards.loads(json.dumps(EXAMPLES[0]).encode())
    assert json.loads(cards.dumps(card)) == EXAMPLES[0]
    assert (card.schema, card.spec.fields[0].name) == (EVENTS, "timestamp_day")


def test_the_example_marks_are_marks() -> None:
    store = open_store("memory://txlog-format")
    store.replace("marks.json", json.dumps(EXAMPLES[1]).encode())
    copy = folder.Folder(store).marks()
    assert copy is not None and copy.sequence_number == 17
    assert marks_json.to_json(copy.marks) == EXAMPLES[1]["marks"]
    assert copy.marks.writer("ingest-7").position == b"\x00offset\xff"


def test_the_example_reason_has_the_keys_of_a_reason() -> None:
    store = open_store("memory://txlog-format-reason")
    name = names.TxlogName.parse(re.findall(r"pending/(ingest\S+)", TEXT)[0])
    there = folder.Folder(store)
    there.publish(name, b"x")
    there.reject(name, errors.TxlogCorrupt("x"), datetime(2026, 11, 21, tzinfo=UTC))
    assert there.reason(name).keys() == EXAMPLES[2].keys()
    assert there.reason(name)["hint"] == EXAMPLES[2]["hint"]


def test_every_header_key_is_documented_and_no_other() -> None:
    said = set(re.findall(r"`(bookkeeper\.[a-z-]+)`", section("The header")))
    assert said == {f"bookkeeper.{key}" for _, known in txlog._KEYS_OF.values() for key in known}
    written = avro.read_header((FOLDER / "steps.txlog.avro").read_bytes()).meta
    assert all(f"`{key}`" in section("The header") for key in written)


def test_every_reason_to_refuse_is_documented_and_no_other() -> None:
    kinds = {kind.__name__ for kind in errors.Reject.__subclasses__()}
    assert set(re.findall(r"`([A-Z][A-Za-z]+)`(?=,| \|)", section("What is rejected"))) == kinds


def test_the_limits_are_those_of_the_code() -> None:
    limits = section("The header")
    assert txlog.MOST_ENTRIES == 100_000 and "100,000 entries" in limits
    assert decoder.RECORD_BYTES == 4 * 2**20 and "4 MiB an entry" in limits
    assert Table().max_txlog_bytes == 64 * 2**20 and "64 MiB before and after decompression" in limits
    assert layout._SCHEMA_BYTES == 256 * 2**10 and "at most 256 KiB" in limits
    assert txlog.MOST_SPAN == 10_000 and "at most 10,000" in section("Steps and deletes: version 2")
    assert txlog.POSITION_BYTES == 1024 and "at most 1,024" in limits
    assert marks.MOST_HOLES == 64 and "more than 64 holes" in TEXT
    assert marks.FUTURE_MS == 3_600_000 and "more than an hour ahead" in TEXT


def test_the_example_names_are_names() -> None:
    (example,) = re.findall(r"pending/(ingest\S+)", section("Names"))
    assert str(names.TxlogName.parse(example)) == example
    assert f"`{names.WRITER.pattern}`" in section("Names")


def test_the_bare_writer_writes_a_txlog() -> None:
    store = open_store("memory://bare-writer")
    store.replace("card.json", json.dumps(EXAMPLES[0]).encode())
    (code,) = re.findall(r"```python\n(.*?)```", section("A writer in Python"), re.DOTALL)
    given = {"url": store.url, "now_ms": 1_795_262_400_123, "random_bytes": bytes(10), "data_files": [data_file(1)]}
    exec(compile(code, "docs/maintain/txlog-format.md", "exec"), given)
    (found,) = folder.Folder(store).pending()
    read = txlog.decode(found.name, store.read(f"pending/{found.name}"), 2**20)
    assert read.files == (data_file(1),)


@pytest.mark.parametrize("path", ["/work", "/tmp", "/root", "/home"])
def test_it_names_no_path_of_any_machine(path: str) -> None:
    assert path not in TEXT


@pytest.mark.parametrize("anchor", re.findall(r"\]\(#([\w-]+)\)", TEXT))
def test_its_links_lead_somewhere(anchor: str) -> None:
    titles = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
