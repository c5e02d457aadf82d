"""Commands by which a person decides: each does its one thing, once, and refuses what could double or lose rows."""

import json
from datetime import timedelta
from typing import Any

from bookkeeper.contract.txlog_folder import Folder
from tests.support.lake import Lake, Writes
from tests.support.slots import Slot, offsets_of


def test_once_commits_what_is_pending_and_says_so(lake: Lake, writer: Writes, asked) -> None:
    writer.publish("a")
    (row,) = asked("once")
    assert (row["outcome"], row["txlogs"], lake.keys()) == ("committed", 1, ["a"])


def test_once_on_a_halted_table_exits_with_3(lake: Lake, run) -> None:
    with lake.table().transaction() as change:
        change.remove_properties("bookkeeper.marks")
    assert run("once").exit_code == 3


def test_init_again_makes_nothing(run, asked) -> None:
    (row,) = asked("init")
    assert row["made"] == "nothing, all was there"


def rejected_and_mended(lake: Lake, writer: Writes) -> str:
    """A txlog rejected because its data file was not there, which is there now."""
    file = writer.file(["late"])
    path = lake.root / file.path.removeprefix(f"file://{lake.root}/")
    data = path.read_bytes()
    path.unlink()
    name, encoded = writer.encoded([file])
    lake.folder.publish(name, encoded)
    lake.tick()
    assert lake.rejected() == {str(name): "FileMissing"}
    path.write_bytes(data)
    return str(name)


def test_replay_lets_a_mended_txlog_in_exactly_once(lake: Lake, writer: Writes, run, asked) -> None:
    name = rejected_and_mended(lake, writer)
    assert run("replay", name).exit_code == 0
    lake.drain()
    assert (lake.keys(), lake.rejected()) == (["late"], {})
    again = run("replay", name)
    assert again.exit_code == 1
    assert lake.keys() == ["late"]


def test_replay_all_goes_on_after_one_that_cannot(lake: Lake, writer: Writes, asked) -> None:
    name = rejected_and_mended(lake, writer)
    lake.put(f"pending/{Writes(lake, 'w2').name.at(1)}", b"no Avro")
    lake.tick()
    outcomes = {row["txlog"]: row["outcome"] for row in asked("replay", "--all")}
    assert outcomes.pop(name) == "pending again"
    assert all(outcome.startswith("TxlogCorrupt") for outcome in outcomes.values())


def test_replay_all_that_replays_nothing_exits_with_1_and_with_0_when_there_is_nothing(
    lake: Lake, writer: Writes, run
) -> None:
    assert run("replay", "--all").exit_code == 0
    rejected_and_mended(lake, writer)
    lake.put(f"pending/{Writes(lake, 'w2').name.at(1)}", b"no Avro")
    lake.tick()
    assert run("replay", "--all").exit_code == 0  # one of two
    lake.drain()
    done = run("replay", "--all")
    assert (done.exit_code, "no txlog was replayed" in done.stderr) == (1, True)


def test_replay_wants_names_or_all(run) -> None:
    assert run("replay").exit_code == 2


def test_forget_drops_a_writers_position_in_a_commit_of_its_own(lake: Lake, writer: Writes, run) -> None:
    writer.goes_on(b"42", "a")
    lake.tick()
    assert run("forget", "w1").exit_code == 0
    assert lake.view().marks.writer("w1").position is None
    assert lake.operations() == ["append", "replace"]
    assert run("forget", "unknown").exit_code == 1


def test_forget_takes_one_channel_of_a_slot(lake: Lake, run) -> None:
    Slot(lake).reaches("a", p0="7", p1="3")
    lake.tick()
    listed = json.loads(run("writers", "--json").stdout)
    assert [(row["writer"], row["channels"]) for row in listed] == [("slot-00", 2)]
    assert run("forget", "slot-00", "--channel", "p0").exit_code == 0
    assert offsets_of(lake) == {"p1": "3"}
    assert run("forget", "slot-00", "--channel", "p0").exit_code == 1
    assert run("forget", "--channel", "p1", "--idle", "30d").exit_code == 2
    assert run("forget", "slot-00", "other", "--channel", "p1").exit_code == 2


def test_accept_rollback_goes_on_without_the_abandoned_rows(lake: Lake, writer: Writes, run) -> None:
    writer.publish("a")
    lake.tick()
    kept = lake.table().current_snapshot().snapshot_id
    writer.publish("b")
    lake.tick()
    lake.table().manage_snapshots().set_current_snapshot(kept).commit()
    assert run("once").exit_code == 3
    done = run("accept-rollback", "--yes")
    assert done.exit_code == 0
    assert "abandoned: snapshot" in done.stderr
    writer.publish("c")
    lake.tick()
    assert lake.keys() == ["a", "c"]
    assert run("accept-rollback", "--yes").exit_code == 1


def test_accept_clock_lets_a_table_go_on_that_a_clock_of_2038_has_stamped(lake: Lake, writer: Writes, run) -> None:
    writer.publish("a")
    lake.tick()
    right = lake.clock.now
    writer.publish("b")
    lake.tick(days=4000)
    lake.clock.now = right
    writer.publish("c")
    waits = run("once")
    assert waits.exit_code == 4 and "ClockBehind" in waits.stdout
    done = run("accept-clock", "--yes")
    assert done.exit_code == 0 and "4000 d ahead" in done.stderr
    assert run("once").exit_code == 0 and lake.keys() == ["a", "b", "c"]
    assert run("accept-clock", "--yes").exit_code == 1


def past_retention(lake: Lake, writer: Writes, tmp_path) -> None:
    """Two of three files are past retention, which is more than the brake lets go."""
    config = tmp_path / "bookkeeper.toml"
    config.write_text(config.read_text() + '[tables.events.retention]\nkeep = "1h"\n')
    writer.publish("old", at=lake.clock.now.replace(year=2020))
    writer.publish("new")
    lake.tick()
    writer.publish("older", at=lake.clock.now.replace(year=2019))
    lake.tick()


def test_retain_drops_nothing_by_a_clock_that_differs_from_the_storages(
    lake: Lake, writer: Writes, run, asked, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(Folder, "clock_skew", lambda folder, now: timedelta(minutes=-6))
    past_retention(lake, writer, tmp_path)
    assert "clock" in asked("retain", "--force")["outcome"]
    monkeypatch.undo()
    assert asked("retain", "--force")["outcome"] == "dropped"


def test_retain_releases_the_brake_only_when_told_to(lake: Lake, writer: Writes, run, asked, tmp_path) -> None:
    past_retention(lake, writer, tmp_path)
    assert asked("retain", "--dry-run")["files"] == 2
    assert "brake" in asked("retain")["outcome"]
    assert lake.keys() == ["new", "old", "older"]
    assert asked("retain", "--force")["outcome"] == "dropped"
    assert lake.keys() == ["new"]


def test_verify_finds_nothing_in_a_sound_table(lake: Lake, writer: Writes, run) -> None:
    writer.publish("a")
    lake.tick()
    done = run("verify")
    assert (done.exit_code, done.stdout) == (0, "")


def test_verify_finds_a_lost_data_file_and_a_file_of_another_size(lake: Lake, writer: Writes, run, asked) -> None:
    writer.publish("a")
    writer.publish("b")
    lake.tick()
    first, second = sorted(lake.root.rglob("*.parquet"))
    first.unlink()
    second.write_bytes(b"short")
    assert run("verify").exit_code == 1
    what = [row["what"] for row in asked("verify")]
    assert any("does not exist" in text for text in what)
    assert any("has 5 bytes" in text for text in what)


def test_verify_repair_mends_what_is_safe_and_only_when_told_to(lake: Lake, writer: Writes, run, asked) -> None:
    writer.publish("a")
    before = lake.saved()
    txlog = {item: (lake.root / "demo/events/_bookkeeper/pending" / item).read_bytes() for item in lake.pending()}
    lake.tick()
    assert before.copy.exists()
    for name, data in txlog.items():
        lake.put(f"pending/{name}", data)
    lake.store(lake.made.folder).delete_many(["marks.json"])
    assert {row["repair"] for row in asked("verify", "--repair")} == {"delete it", "write it again"}
    assert lake.pending() == list(txlog)
    run("verify", "--repair", "--yes")
    assert (lake.pending(), run("verify").exit_code, lake.keys()) == ([], 0, ["a"])


def test_rehash_moves_channels_and_claims_verdicts_when_told_to(lake: Lake, run, asked) -> None:
    Slot(lake, "orders-00").reaches("a", t0="1", t1="1", t2="1")
    lake.drain()
    lake.put("letters/orders-00.json", b'{"version": 1, "run": "before", "letters": {"t0": [7]}}')

    def verdicts() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(lake.folder.store.read("letters/orders-00.json"))
        return found

    assert (asked("rehash", "orders", "--slots", "5")["outcome"], verdicts()["run"]) == ("dry run", "before")
    assert asked("rehash", "orders", "--slots", "5", "--yes")["outcome"] == "moved"
    one = verdicts()
    assert one["run"].startswith("rehash.") and one["letters"] == {"t0": [7]}
    # as behind a crash between the commit and this
    assert asked("rehash", "orders", "--slots", "5", "--yes")["outcome"] == "nothing to move"
    assert verdicts()["run"] not in (one["run"], "before")


def test_discard_says_first_what_it_would_give_up_and_does_it_when_told_to(lake: Lake, writer: Writes, run, asked):
    far = writer.publish("far", sequence=70)
    one = f"{far.writer}.{far.incarnation}"
    assert run("discard", one, "--up-to", "70").exit_code == 1
    planned = asked("discard", one, "--up-to", "69")
    assert (planned["given_up"], planned["first"], planned["last"], planned["outcome"]) == (69, 1, 69, "dry run")
    assert lake.operations() == []
    assert asked("discard", one, "--up-to", "69", "--yes")["outcome"] == "given up"
    lake.tick()
    assert lake.keys() == ["far"]


def test_restore_marks_says_first_from_where_and_puts_them_back_when_told_to(lake: Lake, writer: Writes, run, asked):
    from tests.tick.test_history import lose_the_property

    writer.publish("a")
    lake.tick()
    lose_the_property(lake)
    assert "restore-marks" in run("once").stderr or run("once").exit_code == 3
    assert (asked("restore-marks")["from"], asked("restore-marks")["outcome"]) == ("marks.json", "dry run")
    assert run("status").stdout.count("halted") == 1
    assert asked("restore-marks", "--yes")["outcome"] == "put back"
    assert run("once").exit_code == 0
    assert run("restore-marks", "--yes").exit_code == 1


def test_verify_looks_at_a_halted_table_too_and_mends_nothing_there(lake: Lake, writer: Writes, run, asked):
    from tests.tick.test_history import roll_back

    for key in "ab":
        writer.publish(key)
        lake.tick()
    roll_back(lake)
    done = run("verify", "--json")
    assert done.exit_code == 1
    assert '"halted: ' in done.stdout
    before = lake.pending(), lake.folder.store.read("marks.json")
    assert run("verify", "--repair", "--yes").exit_code == 3
    assert (lake.pending(), lake.folder.store.read("marks.json")) == before


def test_recover_catalog_shows_first_and_registers_with_yes(lake: Lake, writer: Writes, run, asked) -> None:
    writer.publish("a")
    lake.tick()
    writer.publish("b")
    newest = lake.table().metadata_location
    lake.catalog.engine.dispose()  # type: ignore[attr-defined]
    for file in lake.root.glob("catalog.db*"):
        file.unlink()

    for command in ("status", "pending", "verify", "tail", "restore-marks", "once"):
        done = run(command)
        assert done.exit_code == 4 and "bookkeeper init" not in done.output, done.output
    refused = run("init")
    assert (refused.exit_code, "recover-catalog --table events" in refused.stderr) == (1, True)
    (row,) = asked("recover-catalog")
    assert (row["outcome"], row["metadata"], row["marks.json"]) == ("dry run", newest, "the same")
    assert not (lake.root / "catalog.db").exists()

    (row,) = asked("recover-catalog", "--yes")
    assert row["outcome"] == "registered"
    assert run("once").exit_code == 0
    assert lake.keys() == ["a", "b"]
    (row,) = asked("recover-catalog", "--yes")
    assert row["outcome"] == "nothing to recover"


def test_recover_catalog_of_a_table_that_never_was_says_that_init_makes_it(lake: Lake, run) -> None:
    (lake.root / "demo/events/_bookkeeper/card.json").unlink()

    done = run("recover-catalog")

    assert (done.exit_code, "no txlog folder knows this table" in done.stderr) == (1, True)


def test_recover_catalog_takes_the_metadata_file_of_one_table(lake: Lake, run, tmp_path) -> None:
    config = tmp_path / "bookkeeper.toml"
    config.write_text(config.read_text() + '[tables.other]\nidentifier = "demo.other"\n')

    assert run("recover-catalog", "--metadata", "x").exit_code == 2


def test_forget_takes_patterns_and_idle_and_says_what_it_keeps(lake: Lake, run, asked) -> None:
    for name in ("pod-1", "pod-2", "other"):
        Writes(lake, name).goes_on(b"1", name)
    lake.tick()
    Writes(lake, "pod-2").publish("later")
    done = run("forget", "pod-*", "--json")
    assert "pod-2 is kept: it has pending txlogs" in done.stderr and '"pod-1"' in done.stdout
    assert run("forget").exit_code == 2
    assert run("forget", "--idle", "soon").exit_code == 2
    nothing = run("forget", "--idle", "30d")
    assert nothing.exit_code == 1 and "idle for 30 d" in nothing.stderr
