"""Lines of dropped objects ask for columns that the table lacks, where its schema may grow."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bookkeeper.config.settings import Evolve
from tests.cli.commands import words
from tests.support.logs import logging_put_back
from tests.support.writer_queue import Queue
from tests.watch.test_page import LINE, run
from writers.cli import main

AT = "2026-03-01T12:00:00Z"
ONCE = f"{LINE} --once --backfill"


@pytest.fixture
def drops(tmp_path: Path) -> Path:
    (made := tmp_path / "drops").mkdir()
    return made


def growing(root: Path, **given: bool) -> Queue:
    return Queue(root / "lake", evolve=Evolve(**given))


def put(drops: Path, name: str, *rows: dict[str, object]) -> None:
    text = "".join(json.dumps({"timestamp": AT, **row}) + "\n" for row in rows).encode()
    (drops / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


def table(queue: Queue) -> list[dict[str, object]]:
    found: list[dict[str, object]] = queue.table().scan().to_arrow().drop_columns(["timestamp", "value"]).to_pylist()
    return sorted(found, key=lambda row: str(row["key"]))


def test_fields_of_lines_become_columns_in_all_forms(tmp_path: Path, drops: Path) -> None:
    queue = growing(tmp_path, add=True)
    put(drops, "0.ndjson", {"key": "0", "none": None})
    put(drops, "1.ndjson", {"key": "a"}, {"key": "b", "size": 7, "none": None})
    put(drops, "2.ndjson.gz", {"key": "c", "size": 2**40, "when": "2026-01-31"})
    (drops / "3.csv").write_text(f"timestamp,key,size,place\n{AT},d,8,Ulm\n{AT},e,,\n")
    put(drops, "4.ndjson", {"key": "f", "none": None})
    run(queue, ONCE, drops)
    assert [(row["key"], row["size"], row["place"], str(row["when"])) for row in table(queue)] == [
        ("0", None, None, "None"),
        ("a", None, None, "None"),
        ("b", 7, None, "None"),
        ("c", 2**40, None, "2026-01-31"),
        ("d", 8, "Ulm", "None"),
        ("e", None, None, "None"),
        ("f", None, None, "None"),
    ]
    assert not [*drops.glob("_rejected/*")]


def test_where_it_may_not_grow_and_where_a_column_is_refused_the_object_says_so(tmp_path: Path, drops: Path) -> None:
    fixed, queue = Queue(tmp_path / "fixed"), growing(tmp_path, add=True)
    put(drops, "a.ndjson", {"key": "a", "size": 1})
    run(fixed, ONCE, drops, code=1)
    other = tmp_path / "other"
    other.mkdir()
    put(other, "b.ndjson", {"key": "b", "Key": 1})
    put(other, "c.ndjson", {"key": "c", "size": 1})
    run(queue, ONCE, other, code=1)
    reasons = [
        json.loads(path.read_text())["reason"] for place in (drops, other) for path in place.rglob("*.reason.json")
    ]
    assert reasons[0] == "line 1: the table has no column 'size'"
    assert reasons[1].startswith("line 1: the table has no column 'Key', and gets none: ")
    assert [row["key"] for row in table(queue)] == ["c"]


def test_rows_of_other_objects_in_the_batch_stay_whole(tmp_path: Path, drops: Path) -> None:
    queue = growing(tmp_path, add=True)
    for number in range(6):
        put(drops, f"{number}.ndjson", {"key": f"k{number}", **({"size": number} if number == 3 else {})})
    run(queue, ONCE, drops)
    assert [(row["key"], row["size"]) for row in table(queue)] == [
        (f"k{number}", 3 if number == 3 else None) for number in range(6)
    ]


def test_a_bookkeeper_that_does_not_answer_costs_no_object(tmp_path: Path, drops: Path) -> None:
    queue = growing(tmp_path, add=True)
    put(drops, "a.ndjson", {"key": "a", "size": 1})
    given = [*words(ONCE)[2:], "--settle", "0s", "--patience", "1s"]
    given[given.index("--from") + 1], given[given.index("--folder") + 1] = str(drops), queue.made.folder
    with logging_put_back():
        done = CliRunner().invoke(main, ["watch", *given])
    assert done.exit_code == 4, done.output
    assert (drops / "a.ndjson").exists()
    run(queue, ONCE, drops)
    assert [(row["key"], row["size"]) for row in table(queue)] == [("a", 1)]
