"""`bookkeeper consumers` and `bookkeeper lag`, as a person and a program use them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bookkeeper.cli import main
from bookkeeper.cli.consumers import repeat
from bookkeeper.history.registry import Registry, spark
from tests.support.checkpoints import Query, offset
from tests.support.configured import configured
from tests.support.lake import Lake, Writes
from tests.support.logs import logging_put_back


@pytest.fixture
def query(lake: Lake, writer: Writes, tmp_path: Path) -> Query:
    """A query that has read the first of three commits."""
    for key in "abc":
        writer.publish(key)
        lake.tick()
    first = lake.table().metadata.snapshots[0].snapshot_id
    return Query(tmp_path / "cp").begin(offset(first)).done(offset(first, 1))


def test_a_query_is_registered_listed_and_removed(query: Query, asked, run) -> None:
    assert asked("consumers", "add", "live", "--checkpoint", str(query.root))["state"] == "live"
    (row,) = asked("consumers")
    assert (row["consumer"], row["state"], row["checkpoint"], row["batch"]) == ("live", "live", query.url, 0)
    assert asked("consumers", "list") == [row]
    asked("consumers", "remove", "live")
    assert asked("consumers") == []
    assert run("consumers", "remove", "live").exit_code == 1


def test_nothing_is_registered_in_a_folder_that_is_empty(lake: Lake, query: Query, run) -> None:
    """As where its disk is not mounted: the reaper would not see it."""
    for item in lake.folder.store.list(""):
        lake.folder.store.delete_many([item.key])
    for how in (("--checkpoint", str(query.root)), ("--snapshot", "current", "--ttl", "2h")):
        done = run("consumers", "add", "live", *how)
        assert (done.exit_code, "no card.json" in done.stderr) == (3, True)
    assert [item.key for item in lake.folder.store.list("")] == []


def test_another_reader_names_a_snapshot_and_how_long(lake: Lake, query: Query, asked, run) -> None:
    asked("consumers", "add", "export", "--snapshot", "current", "--ttl", "2h")
    (row,) = asked("consumers")
    assert row["snapshot"] == str(lake.table().metadata.current_snapshot_id)
    assert run("consumers", "add", "x", "--snapshot", "4711", "--ttl", "2h").exit_code == 1
    assert run("consumers", "add", "x", "--snapshot", "nonsense", "--ttl", "2h").exit_code == 1
    assert run("consumers", "add", "export", "--snapshot", "4711", "--ttl", "2h").exit_code == 1
    assert [item["consumer"] for item in asked("consumers")] == ["export"]
    assert run("consumers", "add", "x", "--snapshot", "current").exit_code == 2
    assert run("consumers", "add", "x").exit_code == 2
    assert len(asked("consumers")) == 1


def test_lag_says_what_is_unread(query: Query, asked, run) -> None:
    asked("consumers", "add", "live", "--checkpoint", str(query.root))
    asked("consumers", "add", "unknown", "--checkpoint", f"{query.root}-nowhere")
    live, unknown = asked("lag")
    assert (live["consumer"], live["snapshots"], live["files"], live["rows"]) == ("live", 2, 2, 2)
    assert live["bytes"] > 0 and live["behind"] >= 0
    assert (unknown["state"], unknown["rows"]) == ("unreadable", None)
    text = run("lag").stdout
    assert "live" in text and "behind" in text


def test_lag_and_status_say_that_a_service_of_the_catalog_maintains_the_table(tmp_path: Path) -> None:
    serviced = {"folder": f"{tmp_path}/folder", "maintained_by": "catalog"}
    lake = Lake(tmp_path / "lake", **serviced)
    query, config = Query(tmp_path / "cp"), configured(lake)
    said = "\n".join(f'{key.replace("_", "-")} = "{value}"' for key, value in serviced.items())
    config.write_text(config.read_text() + said + "\n")  # its last section is the table's
    Registry(lake.folder.store).add(spark("live", query.url, lake.clock.now, by="command"))

    def asked(command: str) -> Any:
        done = CliRunner().invoke(main, [command, "--json"], env={"BOOKKEEPER_CONFIG": str(config)})
        return json.loads(done.stdout)

    with logging_put_back():
        (row,) = asked("lag")
        assert row["kept_for"] == timedelta(days=5).total_seconds()
        assert asked("status")["maintained_by"] == "catalog"
        (found,) = asked("verify")
        assert found["severity"] == "info" and "after 3 d" in found["what"]


def test_a_mend_is_a_dry_run_until_told_otherwise(query: Query, asked, run) -> None:
    first = query.root / "sources/0/offsets/0"
    asked("consumers", "add", "nightly", "--checkpoint", str(query.root), "--available-now")
    query.done(offset(int(asked("consumers")[0]["snapshot"]), 1))
    before = first.read_text()
    (row,) = asked("consumers", "--mend")
    assert (row["outcome"], row["says"], first.read_text()) == ("would be mended", before, before)

    (row,) = asked("consumers", "--mend", "--yes")

    assert row["outcome"] == "mended"
    assert first.read_text() == '{"version":1,"snapshot_id":-1,"position":-1,"scan_all_files":false}'
    assert [path.name for path in first.parent.iterdir()] == ["0"]
    assert asked("consumers", "--mend")[0]["outcome"] == "nothing to mend"


def test_a_query_that_only_began_is_not_mended(query: Query, asked) -> None:
    (query.root / "commits/0").unlink()
    asked("consumers", "add", "nightly", "--checkpoint", str(query.root), "--available-now")
    assert asked("consumers", "--mend", "--yes")[0]["outcome"].startswith("NotPossible")


def test_no_mend_helps_a_consumer_that_is_cut_off(query: Query, asked) -> None:
    query.done(offset(4711))
    asked("consumers", "add", "nightly", "--checkpoint", str(query.root), "--available-now")
    assert asked("consumers")[0]["state"] == "cut off"
    (row,) = asked("consumers", "--mend", "--yes")
    assert "expired too" in row["outcome"]
    assert "4711" not in (query.root / "sources/0/offsets/0").read_text()


def test_watching_shows_again_after_each_pause_until_stopped() -> None:
    shown: list[str] = []
    answers = iter([False, False, True])
    repeat(lambda: shown.append("row"), timedelta(seconds=5), lambda seconds: next(answers) if seconds == 5 else True)
    assert len(shown) == 3


def test_a_first_offset_is_said_to_grow_only_when_it_takes_a_tenth_of_max_hold(
    lake: Lake, query: Query, asked, tmp_path: Path
) -> None:
    query.done(offset(lake.table().metadata.snapshots[1].snapshot_id, 1))
    asked("consumers", "add", "nightly", "--checkpoint", str(query.root), "--available-now")
    assert (asked("consumers")[0]["state"], asked("consumers")[0]["what"]) == ("live", None)
    with (tmp_path / "bookkeeper.toml").open("a") as config:
        config.write("[tables.events.reaper]\nmax-hold-snapshots = 10\n")
    assert asked("consumers")[0]["what"] == (
        "bound to grow: its first offset takes 20% of max-hold; --mend it between two runs"
    )


def test_status_says_which_consumer_is_unreadable_why_and_what_it_means(lake: Lake, asked, run) -> None:
    assert "unreadable_consumers" not in asked("status")
    lake.put("consumers/odd.json", b"[" * 100)
    lake.put("consumers/far.json", b'{"version":1,"checkpoint":"http://127.0.0.1:1/cp"}')
    far, odd = asked("status")["unreadable_consumers"]
    assert far.startswith("far: http://127.0.0.1:1/cp") and "no snapshot expires before max-hold" in far
    assert odd.startswith("odd: ")
    assert "odd: " in run("status").stdout
