"""Rows as an Arrow stream: cast as those of files are, bounded before they are read, and taken as a whole."""

import random
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import HourTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from tests.http.served import SCHEMA, Door, Reply, arrow, door, ndjson, numbers, queue, zstd
from tests.support.keyed_rows import rows as live_rows
from tests.support.memory import memory_within
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.http import arrow_body
from writers.http.requests import Refused

MOST = 2**20
END = b"\xff\xff\xff\xff\0\0\0\0"


@pytest.fixture
def lake(tmp_path: Path) -> Queue:
    return queue(tmp_path)


def send(served: Door, body: bytes | pa.Table, *named: Any, **more: str) -> Reply:
    data = body if isinstance(body, bytes) else arrow(body)
    return served.rows(data, *named, **{"Content_Type": arrow_body.ARROW, **more})


def table(*numbers: int, **more: Any) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), **more})


def texts(lake: Queue) -> list[tuple[int, str | None]]:
    return sorted((row["n"], row["who"]) for row in lake.table().scan().to_arrow().to_pylist())


def test_its_rows_are_cast_as_those_of_files(lake: Queue) -> None:
    long = "a text of more than twelve bytes"
    who = {
        1: pa.array(["a"]),
        2: pa.array([long], pa.large_string()),
        3: pa.array([long], pa.string_view()),
        4: pa.array(["d"]).dictionary_encode(),
        5: pa.nulls(1),
        6: pa.array([None], pa.string_view()),
        7: pa.array([None], pa.string()).dictionary_encode(),
    }
    with door(lake) as served:
        for number, column in who.items():
            reply = send(served, pa.table({"who": column, "n": pa.array([number], pa.int16())}))
            assert (reply.status, reply.body["rows"]) == (200, 1), column.type
        batches = pa.concat_tables([table(8), table(), table(9)])
        assert send(served, batches).body["rows"] == 2
        assert send(served, zstd(arrow(table(10))), Content_Encoding="zstd").status == 200
        assert send(served, arrow(table(11), metadata_version=pa.ipc.MetadataVersion.V4)).status == 200
        extra = table(12).replace_schema_metadata({"pandas": "{"})
        assert send(served, extra, Content_Type=f"{arrow_body.ARROW}; x=y").status == 200
    lake.tick()

    assert texts(lake) == [
        (1, "a"),
        (2, long),
        (3, long),
        (4, "d"),
        *((number, None) for number in range(5, 13)),
    ]


def test_requests_of_named_producers(lake: Queue) -> None:
    with again_and_again(lake.tick, 0.05), door(lake) as owner, door(lake) as other, ThreadPoolExecutor(9) as pool:
        assert send(owner, table(1), "p", 1).status == 200
        assert send(other, table(2, who=["b"]), "p", 2).status == 200
        assert send(other, table(2, who=["b"]), "p", 2).body["duplicate"]
        bad = send(other, table(3, 4, who=["c", None]).append_column("x", pa.array([1, 2])), "p", 3)
        assert bad.status == 422 and "'x'" in bad.body["error"] and "row" not in bad.body
        bad = send(other, pa.table({"n": [3, None, 4]}), "p", 3)
        assert (bad.status, bad.body["row"]) == (422, 2)
        mixed = [
            *(pool.submit(send, owner, table(number), "p", number) for number in (3, 4, 5)),
            *(pool.submit(owner.rows, ndjson(number), "p", number) for number in (6, 7)),
            *(pool.submit(send, owner, table(number), f"q{number}", 1) for number in (8, 9)),
        ]
        assert {reply.result().status for reply in mixed} == {200}

    assert numbers(lake) == [*range(1, 10)]


def test_rows_of_a_keyed_table_are_upserts(tmp_path: Path) -> None:
    lake = queue(tmp_path, key=("n",))
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert send(served, table(1, 2, who=["a", "b"]), "p", 1).status == 200
        assert send(served, table(1, who=["c"]), "p", 2).status == 200

    assert sorted((row["n"], row["who"]) for row in live_rows(lake, "n")) == [(1, "c"), (2, "b")]


def test_it_is_taken_as_a_whole(lake: Queue) -> None:
    with door(lake) as served:
        reply = served.rows(arrow(table(1)), query="?partial=1", Content_Type=arrow_body.ARROW)
        assert reply.status == 400 and "partial" in reply.body["error"]
        values = [*range(1000)]
        values[777] = None  # type: ignore[call-overload]
        reply = send(served, pa.table({"n": values}))
        assert (reply.status, reply.body["row"]) == (422, 778)
        for column in (pa.array(["1"]), pa.array([1.5]), pa.array([2**63], pa.uint64()), pa.array([None], pa.int64())):
            assert send(served, pa.table({"n": column})).status == 422, column.type
        assert send(served, pa.table([[1], [2]], names=["n", "n"])).status == 422
        assert send(served, pa.table({"who": ["a"]})).status == 422
    assert not lake.pending()


def test_columns_that_the_table_got_meanwhile(lake: Queue) -> None:
    with door(lake) as served:
        assert send(served, table(1)).status == 200
        lake.tick()
        with lake.table().update_schema() as update:
            update.add_column("more", SCHEMA.find_type("n"))
        lake.tick()
        assert send(served, table(2, more=[3])).status == 200
    lake.tick()

    assert numbers(lake) == [1, 2]


def test_times_by_which_there_is_no_partition_cost_no_other_request(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "n", LongType(), required=True),
        NestedField(2, "who", StringType()),
        NestedField(3, "at", TimestamptzType()),
    )
    lake = Queue(tmp_path, schema=schema)
    with lake.table().update_spec() as update:
        update.remove_field(lake.table().spec().fields[0].name) if lake.table().spec().fields else None
        update.add_field("at", HourTransform(), "hour")
    lake.tick()
    far = pa.array([0, 2**63 - 1], pa.int64()).view(pa.timestamp("us", "UTC"))
    with door(lake) as served, ThreadPoolExecutor(2) as pool:
        good = pool.submit(send, served, table(5, at=far[:1]))
        bad = send(served, table(1, 2, at=far))
        assert (bad.status, bad.body["row"]) == (422, 2)
        assert good.result().status == 200
    lake.tick()

    assert numbers(lake) == [5]


def lists_of(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def patched(body: bytes, old: bytes, new: bytes) -> bytes:
    assert body.count(old) and len(old) == len(new)
    return body.replace(old, new)


VIEW = pa.array(["x" * 100_000] * 1, pa.string_view())
VIEWS = pa.Array.from_buffers(
    pa.string_view(), 1000, [None, pa.py_buffer(VIEW.buffers()[1].to_pybytes() * 1000), VIEW.buffers()[2]]
)
WORDS = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array(["x" * 100_000]))
GOOD = arrow(table(*range(1000)))
HOSTILE: dict[str, tuple[Callable[[], bytes], int]] = {
    "nothing": (lambda: b"", 400),
    "no Arrow": (lambda: b"x" * 1000, 400),
    "NDJSON": (lambda: ndjson(1), 400),
    "Parquet": (lambda: b"PAR1" + GOOD, 400),
    "a file": (lambda: b"ARROW1\0\0" + GOOD, 400),
    "the end alone": (lambda: END, 400),
    "no rows": (lambda: arrow(table()), 400),
    "no end": (lambda: GOOD[:-8], 400),
    "half an end": (lambda: GOOD[:-4], 400),
    "cut off": (lambda: GOOD[: len(GOOD) // 2], 400),
    "two streams": (lambda: GOOD + GOOD, 400),
    "bytes behind it": (lambda: GOOD + b"x", 400),
    "two ends": (lambda: GOOD + END, 400),
    "a message of 2 GiB": (lambda: b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 1) + GOOD, 400),
    "a message of minus one": (lambda: b"\xff\xff\xff\xff\xff\xff\xff\xff" + GOOD, 400),
    "buffers by zstd": (lambda: arrow(pa.table({"who": ["x" * 2**27]}), compression="zstd"), 400),
    "buffers by lz4": (lambda: arrow(table(*range(1000)), compression="lz4"), 400),
    "rows of nothing": (lambda: arrow(pa.table({"who": pa.nulls(10**9)})), 413),
    "2^62 rows": (lambda: patched(GOOD, struct.pack("<q", 1000), struct.pack("<q", 2**62)), 413),
    "more rows than there are": (lambda: patched(GOOD, struct.pack("<q", 1000), struct.pack("<q", 1001)), 400),
    "a row less than nothing": (lambda: patched(GOOD, struct.pack("<q", 1000), struct.pack("<q", -1)), 400),
    "a buffer elsewhere": (lambda: patched(GOOD, struct.pack("<q", 8000), struct.pack("<q", 2**40)), 400),
    "batches of nothing": (lambda: arrow(pa.Table.from_batches([table(1).to_batches()[0]] * 2000)), 413),
    "lists of nothing": (lambda: arrow(pa.table({"who": lists_of(pa.nulls(2**31 - 1))})), 400),
    "lists of empty structs": (
        lambda: arrow(pa.table({"who": lists_of(pa.StructArray.from_buffers(pa.struct([]), 2**31 - 1, [None]))})),
        400,
    ),
    "bytes of no width": (lambda: arrow(pa.table({"who": pa.array([b""], pa.binary(0))})), 400),
    "fixed lists": (lambda: arrow(pa.table({"who": pa.array([[1, 2]], pa.list_(pa.int8(), 2))})), 400),
    "views of one text": (lambda: arrow(pa.table({"n": range(1000), "who": VIEWS})), 413),
    "views inside": (lambda: arrow(pa.table({"who": lists_of(VIEWS)})), 400),
    "a dictionary of one text": (lambda: arrow(pa.table({"n": range(1000), "who": WORDS})), 413),
    "a dictionary inside": (lambda: arrow(pa.table({"who": lists_of(WORDS)})), 400),
    "dictionaries of lists": (
        lambda: arrow(
            pa.table({"who": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[None]], pa.list_(pa.null())))})
        ),
        400,
    ),
    "an index outside of its dictionary": (
        lambda: arrow(pa.table({"who": pa.DictionaryArray.from_arrays(pa.array([7]), pa.array(["a"]), safe=False)})),
        400,
    ),
    "runs": (lambda: arrow(pa.table({"who": pa.RunEndEncodedArray.from_arrays([150_000], ["x"])})), 400),
    "a union": (
        lambda: arrow(pa.table({"who": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])})),
        400,
    ),
    "list views": (lambda: arrow(pa.table({"who": pa.array([[1]], pa.list_view(pa.int8()))})), 400),
    "deep": (lambda: arrow(pa.table({"who": deep(60)})), 400),
    "3,000 columns": (lambda: arrow(pa.table({f"c{number}": [1] for number in range(3000)})), 413),
    "3,000 columns inside": (lambda: arrow(pa.table({"who": [{f"c{number}": 1 for number in range(3000)}]})), 413),
    "a name that is not UTF-8": (lambda: patched(arrow(pa.table({"name": [1]})), b"name", b"n\xff\xfee"), 400),
    "a name inside that is not UTF-8": (
        lambda: patched(arrow(pa.table({"who": [{"name": 1}]})), b"name", b"n\xff\xfee"),
        400,
    ),
    "a long name": (lambda: arrow(pa.table({"x" * 500_000: [1]})), 422),
    "a text that is not UTF-8": (lambda: patched(arrow(table(1, who=["text"])), b"text", b"t\xff\xfet"), 400),
    "a time zone of nowhere": (lambda: arrow(pa.table({"n": pa.array([1], pa.timestamp("us", "No/Where"))})), 422),
    "a time of 26 hours": (lambda: arrow(pa.table({"who": pa.array([10**11], pa.int64()).view(pa.time64("us"))})), 400),
    "too many digits": (
        lambda: arrow(
            pa.table({"who": pa.Array.from_buffers(pa.decimal128(2, 0), 1, [None, pa.py_buffer(b"x" * 16)])})
        ),
        400,
    ),
}


def deep(levels: int) -> pa.Array:
    found = pa.array([1])
    for _ in range(levels):
        found = pa.StructArray.from_arrays([found], ["a"])
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_made_to_harm_is_refused_and_takes_no_memory(name: str, hostile: Door) -> None:
    served, (make, status) = hostile, HOSTILE[name]
    body = make()
    with memory_within(50):
        reply = send(served, body)
    assert reply.status == status, reply.body
    assert len(reply.body["error"]) < 1000
    assert send(served, table(1)).status == 200


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Any:
    lake = queue(tmp_path_factory.mktemp("arrow"))
    with again_and_again(lake.tick, 0.05), door(lake, max_body=MOST) as served:
        yield served
    lake.tick()
    assert set(numbers(lake)) == {1}


def test_bytes_that_are_changed_anywhere_are_rows_or_refused() -> None:
    """What passes can be read to the end, in each of its types."""
    columns = {
        "n": pa.array([1, None, 3]),
        "d": pa.array(["a", "b", "a"]).dictionary_encode(),
        "v": pa.array(["x", None, "a text of more than twelve bytes"], pa.string_view()),
        "l": pa.array([[["a"]], [[], ["b"]], None], pa.large_list(pa.list_(pa.string()))),
        "m": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "s": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        "f": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    }
    bodies = [arrow(pa.table(columns)), *(arrow(pa.table({name: column})) for name, column in columns.items())]
    chance, taken = random.Random(29), 0
    for _ in range(3000):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(body) - 8) & ~3
            value = chance.choice((0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(-64, 2000)))
            body[at : at + 4] = struct.pack("<i", value)
        try:
            rows = arrow_body.arrow_rows(bytes(body), 1000, lambda size: None)
        except Refused:
            continue
        rows.table.validate(full=True)
        taken += 1
    assert 100 < taken < 2900
