"""Commands that only look say the same to people and to programs, and change nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

from bookkeeper.contract.column_requests import TRAY, ColumnRequest, encode, publish
from bookkeeper.contract.rewrite import key_of
from bookkeeper.errors import ColumnRefused
from tests.support.compactor import base_of, encoded, live, published
from tests.support.forge import with_header
from tests.support.lake import Lake, Writes
from tests.support.slots import Slot


def test_pending_lists_what_is_published_oldest_first(lake: Lake, writer: Writes, run, asked) -> None:
    names = [str(writer.publish("a")), str(writer.publish("b"))]
    assert [row["txlog"] for row in asked("pending")] == names
    assert names[0] in run("pending").stdout
    assert lake.pending() == names


def test_nothing_pending_is_said_on_stderr_and_is_an_empty_list_for_programs(run, asked) -> None:
    assert run("pending").stdout == ""
    assert "no txlog is pending" in run("pending").stderr
    assert asked("pending") == []


def test_pending_lists_rewrites_with_their_base_and_what_is_none(lake: Lake, writer: Writes, run, asked) -> None:
    writer.publish("a")
    lake.tick()
    rewrite_id, base = published(lake, live(lake)), base_of(lake)
    lake.put("rewrites/garbage.avro", b"garbage")
    name = str(writer.publish("b"))
    rows = asked("pending")
    assert [row.get("txlog") for row in rows] == [name, None, None]
    by_name = {row["rewrite"]: row for row in rows[1:]}
    good, bad = by_name[f"{rewrite_id}.avro"], by_name["garbage.avro"]
    assert (good["base"], good["replaces"], good["adds"], good["trouble"]) == (str(base.snapshot_id), 1, 1, None)
    assert abs(good["age"]) < 60 and good["bytes"] > 0
    assert bad["trouble"].startswith("RewriteCorrupt") and bad["base"] is None
    shown = run("pending").stdout
    assert name in shown and f"{rewrite_id}.avro" in shown and str(base.snapshot_id) in shown
    assert asked("status")["pending_rewrites"] == 2


def test_show_says_what_a_rewrite_replaces_and_whether_it_fits(lake: Lake, writer: Writes, run, asked) -> None:
    writer.publish("a", "b")
    lake.tick()
    old = live(lake)
    rewrite_id, data = encoded(lake, old)
    lake.put(key_of(rewrite_id), data)
    shown = asked("show", f"{rewrite_id}.avro")
    assert (shown["place"], shown["verdict"], shown["rows"]) == ("rewrites", "fits the table", 2)
    assert [(file["is"], file["path"] == old[0].file.path) for file in shown["files"]] == [
        ("new", False),
        ("replaced", True),
    ]
    assert "fits the table" in run("show", f"rewrites/{rewrite_id}.avro").stdout
    lake.tick()
    assert "neither pending nor rejected" in run("show", f"{rewrite_id}.avro").stderr
    lake.put(key_of(rewrite_id), data)
    assert asked("show", f"{rewrite_id}.avro")["verdict"] == "in the table already"


def test_show_says_why_a_rewrite_is_rejected(lake: Lake, writer: Writes, asked) -> None:
    writer.publish("a")
    lake.tick()
    rewrite_id = published(lake, live(lake), record_count=99)
    assert asked("show", f"{rewrite_id}.avro")["verdict"].startswith("RewriteUnfit: its new files have 99 rows")
    lake.tick()
    assert asked("show", f"{rewrite_id}.avro")["place"] == "rejected"
    assert (asked("status")["rejected"], asked("status")["rejected_rewrites"]) == (0, 1)
    lake.put(key_of(rewrite_id), b"garbage")
    assert asked("show", f"{rewrite_id}.avro")["verdict"].startswith("RewriteCorrupt")


def test_show_says_what_a_txlog_holds_and_whether_it_fits(lake: Lake, writer: Writes, run, asked) -> None:
    name = writer.publish("a", "b")
    shown = asked("show", str(name))
    assert (shown["place"], shown["verdict"], shown["rows"]) == ("pending", "fits the table", 2)
    assert [file["rows"] for file in shown["files"]] == [2]
    assert re.fullmatch(r"timestamp_day=\d{4}-\d\d-\d\d", shown["files"][0]["partition"])  # no days since 1970
    assert "fits the table" in run("show", str(name)).stdout


def test_show_says_what_the_channels_of_a_slot_reach(lake: Lake, run, asked) -> None:
    name = Slot(lake).reaches(p0="7", p1="3")
    shown = asked("show", str(name))
    assert (shown["verdict"], shown["offsets"], shown["rows"]) == ("fits the table", {"p0": "7", "p1": "3"}, 0)
    assert "p0" in run("show", str(name)).stdout


def test_show_says_that_a_file_of_a_txlog_is_gone_and_when_it_was_made(lake: Lake, writer: Writes, asked) -> None:
    name = writer.publish("a", "b")
    shown = asked("show", str(name))
    assert shown["created"].startswith("20") and "T" in shown["created"]
    Path(shown["files"][0]["path"].removeprefix("file://")).unlink()
    verdict = asked("show", str(name))["verdict"]
    assert verdict.startswith("FileMissing: ") and verdict.endswith("does not exist")


def test_show_says_of_a_bad_txlog_what_is_wrong_with_it(lake: Lake, writer: Writes, asked) -> None:
    lake.put(f"pending/{writer.name.at(1)}", b"no Avro")
    assert asked("show", str(writer.name.at(1)))["verdict"].startswith("TxlogCorrupt")


def test_show_of_a_consumed_txlog_says_that_it_is_committed(lake: Lake, writer: Writes, run) -> None:
    name = writer.publish("a")
    lake.tick()
    done = run("show", str(name))
    assert (done.exit_code, "it is committed" in done.stderr) == (1, True)


def test_rejected_gives_the_reason_and_what_to_do(lake: Lake, writer: Writes, run, asked) -> None:
    lake.put(f"pending/{writer.name.at(1)}", b"no Avro")
    lake.tick()
    (row,) = asked("rejected")
    assert (row["error"], row["txlog"]) == ("TxlogCorrupt", str(writer.name.at(1)))
    assert row["hint"] in run("rejected").stdout


def test_rejected_lists_refused_requests_for_columns(lake: Lake, run, asked) -> None:
    request = ColumnRequest("add", "_file", "long")
    name, _ = encode(request)
    why = ColumnRefused("the name '_file' is reserved", hint="Rename the field.")
    publish(lake.folder, request)
    TRAY.reject(lake.folder, name, why, lake.clock.now)
    unread = "0" * 64 + ".json"
    lake.put(f"rejected/{unread}", b"garbage")
    one, other = sorted(asked("rejected"), key=lambda row: row["request"] != name)
    assert (one["request"], one["change"], one["column"], one["type"]) == (name, "add", "_file", "long")
    assert (one["error"], one["reason"], one["hint"]) == (
        "ColumnRefused",
        "the name '_file' is reserved",
        "Rename the field.",
    )
    assert (other["request"], other["column"], other["error"]) == (unread, None, None)
    assert "Rename the field." in run("rejected").stdout


def test_what_others_wrote_moves_no_cursor(lake: Lake, run, asked) -> None:
    request = ColumnRequest("add", "\x1b[2Jall is well\n", "long")
    name, data = encode(request)
    lake.put(f"rejected/{name}", data)
    lake.put("rewrites/\x1b[1A.avro", b"garbage")
    assert [row["column"] for row in asked("rejected")] == [request.name]
    for command, shown in (("rejected", "\\x1b[2Jall is well\\n"), ("pending", "\\x1b[1A.avro")):
        done = run(command)
        assert "\x1b" not in done.stdout + done.stderr and shown in done.stdout + done.stderr


def test_status_counts_what_is_pending_committed_and_rejected(lake: Lake, writer: Writes, run, asked) -> None:
    writer.publish("a", "b")
    lake.tick()
    writer.publish("c")
    status = asked("status")
    assert (status["state"], status["pending"], status["rows"], status["data_files"]) == ("ok", 1, 2, 1)
    assert "unfolded" not in status  # of keyed tables only
    assert "state" in run("status").stdout


def test_status_of_a_halted_table_says_so_and_what_to_do(lake: Lake, asked) -> None:
    with lake.table().transaction() as change:
        change.remove_properties("bookkeeper.marks")
    status = asked("status")
    assert status["state"].startswith("halted")
    assert status["hint"]


def test_status_of_a_halted_table_exits_with_3_and_says_what_waits(lake: Lake, writer: Writes, run, asked) -> None:
    writer.publish("a")
    with lake.table().transaction() as change:
        change.remove_properties("bookkeeper.marks")
    assert run("status").exit_code == 3
    assert asked("status")["pending"] == 1


def test_writers_shows_mark_gap_and_position_of_every_run(lake: Lake, writer: Writes, asked) -> None:
    writer.goes_on(b"42", "a")
    lake.tick()
    writer.publish("c", sequence=4)
    (row,) = asked("writers")
    assert (row["writer"], row["mark"], row["gap"], row["position"]) == ("w1", 1, 2, "42")


def test_help_is_instant_and_ends_in_an_example() -> None:
    # What makes it slow is what it imports: no other library than click, and few modules.
    code = """
import runpy, sys
before, sys.argv[1:] = {*sys.modules}, ["--help"]
try:
    runpy.run_module("bookkeeper", run_name="__main__")
except SystemExit:
    pass
imported = {*sys.modules} - before
assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"bookkeeper", "click"}
assert len(imported) < 200
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env={**os.environ, "COLUMNS": "100"})


def test_status_and_pending_say_what_is_held_and_why(lake: Lake, writer: Writes, run, asked) -> None:
    held, data = with_header(Writes(lake, "newer"), "x", bookkeeper__version=b"9")
    lake.put(f"pending/{held}", data)
    lake.put(f"pending/{held.at(2)}", data)
    good = writer.publish("a")
    rows = {row["txlog"]: row["held"] for row in asked("pending")}
    assert "version 9" in rows[str(held)] and rows[str(good)] is None
    status = asked("status")
    assert (status["held"], status["pending"]) == (2, 3) and status["state"].startswith(f"held: {held}: ")
    lake.tick()
    assert asked("status")["held"] == 2 and lake.keys() == ["a"]
    assert "version 9" in run("status").stdout


def test_a_gap_that_is_too_long_is_said_to_be_held(lake: Lake, writer: Writes, asked) -> None:
    writer.publish("a")
    lake.tick()
    for _ in range(66):
        last = writer.publish("x")
        lake.folder.delete([last])
    held, behind = writer.publish("b"), writer.publish("c")
    rows = {row["txlog"]: row["held"] for row in asked("pending")}
    assert "comes 66 sequences after" in rows[str(held)]
    assert rows[str(behind)] == f"waits for {held}"
    assert asked("status")["held"] == 1
