"""Avro of a real broker, with the schemas of a registry: each message once, also while the registry is away."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.kafka.registry import Stub, registry
from tests.kafka.test_avro import record, written
from tests.kafka.test_page import run
from tests.kafka.topics import Copy, Topics, queue, running, until
from tests.support.keyed_rows import state
from writers.kafka.avro import AvroForm, ById
from writers.kafka.schema_registry import Registry, access_to

TABLE = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "offset", LongType()),
)
FILLED = {"offset": "offset"}
FIRST, SECOND = record({"n": "int"}), record({"text": ["null", "string"], "n": "long"})


@pytest.fixture
def stub() -> Iterator[Stub]:
    with registry() as made:
        made.schemas = {1: json.dumps(FIRST), 2: json.dumps(SECOND)}
        yield made


def form(stub: Stub, **more: Any) -> AvroForm:
    return AvroForm(ById(Registry(access_to(stub.url, {})).schema), **more)


def message(number: int, schema: Any, value: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + written(schema, value)


def read(copy: Copy) -> int:
    """Rows, published or not."""
    return 0 if copy.shared is None else sum(it.rows + it.unpublished for it in copy.shared.figures.values())


def rows(copy: Copy) -> list[tuple[int, int, str | None]]:
    copy.queue.tick()
    found = copy.queue.table().scan().to_arrow().to_pylist()
    return sorted((row["offset"], row["n"], row["text"]) for row in found)


def test_messages_of_two_schemas_with_bad_ones_between_are_in_the_table_once(
    topics: Topics, stub: Stub, tmp_path: Path
) -> None:
    topics.make("avro")
    old = [message(1, FIRST, {"n": n}) for n in range(40)]
    new = [message(2, SECOND, {"n": n, "text": "é"}) for n in range(42, 80)]
    topics.send("avro", [*old, b'{"n": 40}', message(9, FIRST, {"n": 41}), *new])
    copy = Copy(topics, queue(tmp_path, TABLE), "avro")

    shared = copy.run(form=form(stub), filled=FILLED, most_bad=2)
    topics.send("avro", [message(1, FIRST, {"n": 80})])
    copy.run(form=form(stub), filled=FILLED, most_bad=2)

    assert sum(shared.skipped.values()) == 2
    assert rows(copy) == [
        *((n, n, None) for n in range(40)),
        *((n, n, "é") for n in range(42, 80)),
        (80, 80, None),
    ]


def test_while_the_registry_is_away_the_slot_waits_and_what_was_read_before_is_published(
    topics: Topics, stub: Stub, tmp_path: Path
) -> None:
    topics.make("avro-away")
    topics.send("avro-away", [message(1, FIRST, {"n": n}) for n in range(20)])
    copy = Copy(topics, queue(tmp_path, TABLE), "avro-away")

    with running(copy, form=form(stub), filled=FILLED):
        until(lambda: read(copy) == 20)
        asked = len(stub.asked)
        stub.status = 503
        topics.send("avro-away", [message(2, SECOND, {"n": 20, "text": "a"})])
        until(lambda: len(stub.asked) > asked + 1)
        before = rows(copy)
        stub.status = 200
        until(lambda: read(copy) == 21)

    assert before == [(n, n, None) for n in range(20)]
    assert rows(copy) == [*before, (20, 20, "a")]
    assert copy.shared is not None and not copy.shared.stopped


def test_a_table_with_changes_of_debezium_is_as_they_leave_it(topics: Topics, stub: Stub, tmp_path: Path) -> None:
    keyed = Schema(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "value", StringType()))
    value = record({"id": "int", "value": ["null", "string"]}, "Value")
    envelope = record({"before": ["null", value], "after": ["null", "Value"], "op": "string"}, "Envelope")
    stub.schemas[3] = json.dumps(envelope)
    topics.make("avro-changes")

    def change(op: str, before: Any, after: Any) -> bytes:
        return message(3, envelope, {"op": op, "before": before, "after": after})

    sent = [change("c", None, {"id": k, "value": "a"}) for k in range(5)]
    sent += [change("u", None, {"id": 1, "value": "b"}), change("d", {"id": 2, "value": None}, None)]
    topics.send("avro-changes", [*sent, None, change("u", {"id": 3, "value": None}, {"id": 9, "value": "c"})])
    copy = Copy(topics, queue(tmp_path, keyed, key=("id",)), "avro-changes")

    copy.run(form=form(stub, changes=True), filled={})
    copy.queue.tick()

    assert state(copy.queue) == {0: "a", 1: "b", 4: "a", 9: "c"}


def test_the_command_reads_by_registry_and_by_file(topics: Topics, stub: Stub, tmp_path: Path) -> None:
    table = queue(tmp_path, TABLE)
    client, schema = tmp_path / "client.properties", tmp_path / "first.avsc"
    client.write_text("client.id=me\nschema.registry.basic.auth.user.info=me:secret\n")
    schema.write_text(json.dumps(FIRST))
    for name, value in (("by-id", message(2, SECOND, {"n": 1, "text": "a"})), ("by-file", written(FIRST, {"n": 2}))):
        topics.make(name)
        topics.send(name, [value])
    usual = ["--folder", table.made.folder, "--brokers", topics.brokers, "--until-end", "--format", "avro"]

    run(["writer", "kafka", *usual, "--topic", "by-id", "--name", "a", "--registry", stub.url, "--client", str(client)])
    run(["writer", "kafka", *usual, "--topic", "by-file", "--name", "b", "--schema", str(schema)])
    table.tick()

    assert {user for _, user in stub.asked} == {"Basic bWU6c2VjcmV0"}
    found = table.table().scan().to_arrow().select(["n", "text"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, "a"), (2, None)]
