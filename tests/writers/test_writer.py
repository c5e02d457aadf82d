"""The writer as its users see it: rows in, data files and txlogs out."""

import os
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from bookkeeper.errors import ConfigInvalid, NotPossible, PathRefused, SchemaRefused, WrongFolder
from bookkeeper.stores.locations import inside
from tests.support.desk import PLAIN, START, Desk, card, noisy_rows, only, rows
from writers.writer import Writer


def test_published_rows_are_in_the_files_that_the_txlog_names(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a", "b"))
        name = writer.publish()
    item = only(desk.txlogs())
    assert item.name == name
    assert (item.name.writer, item.name.sequence, item.row_count) == ("w1", 1, 2)
    assert desk.keys() == ["a", "b"]
    assert only(item.files).partition == ((START.date() - type(START.date())(1970, 1, 1)).days,)


def test_nothing_is_published_when_nothing_was_written(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows())
        assert writer.publish() is None
    assert desk.txlogs() == []


def test_leaving_the_block_publishes_what_is_left(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
    assert desk.keys() == ["a"]


def test_leaving_the_block_by_an_exception_publishes_nothing(desk: Desk) -> None:
    writer = desk.writer()
    with pytest.raises(ZeroDivisionError), writer:
        _fail_after_writing(writer)
    assert desk.txlogs() == []


def _fail_after_writing(writer: Writer) -> None:
    writer.write(rows("a"))
    raise ZeroDivisionError


def test_sequences_count_up_and_every_run_is_a_new_incarnation(desk: Desk) -> None:
    for run in ("x", "y"):
        with desk.writer() as writer:
            for number in range(2):
                writer.write(rows(f"{run}{number}"))
                writer.publish()
    names = [item.name for item in desk.txlogs()]
    assert [name.sequence for name in names] == [1, 2, 1, 2]
    assert len({name.incarnation for name in names}) == 2


def test_a_txlog_names_only_files_of_its_own_incarnation_and_sequence(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
        writer.write(rows("b"))
    for item in desk.txlogs():
        path = only(item.files).path
        assert f"/timestamp_day=2026-03-01/w1-{item.name.incarnation}-{item.name.sequence:010d}-00001.parquet" in path
        assert inside(path, desk.folder.card().data_path)


def test_rows_of_two_days_become_two_files(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a", at=START))
        writer.write(pa.concat_tables([rows("b", at=START + timedelta(days=1)), rows("c", at=START)]))
    found = {file.partition: [row["key"] for row in desk.rows([file])] for file in only(desk.txlogs()).files}
    day = (START - START.replace(year=1970, month=1, day=1, hour=0)).days
    assert found == {(day,): ["a", "c"], (day + 1,): ["b"]}


def test_an_unpartitioned_table_has_its_files_at_the_top(desk: Desk) -> None:
    desk.set_card(spec=PLAIN)
    with desk.writer() as writer:
        writer.write(rows("a"))
    file = only(only(desk.txlogs()).files)
    assert file.partition == ()
    assert file.path.count("/") == desk.folder.card().data_path.count("/") + 1


def test_record_batches_readers_and_tables_are_all_taken(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.write(rows("b").to_batches()[0])
        writer.write(pa.RecordBatchReader.from_batches(rows("c").schema, rows("c").to_batches()))
        with pytest.raises(SchemaRefused, match="int is no row"):
            writer.write([1])
    assert desk.keys() == ["a", "b", "c"]


def test_data_files_carry_the_field_ids(local: Desk) -> None:
    with local.writer() as writer:
        writer.write(rows("a"))
    path = only(only(local.txlogs()).files).path
    fields = pq.read_schema(path.removeprefix("file://"))
    assert [field.metadata[b"PARQUET:field_id"] for field in fields] == [b"1", b"2", b"3"]
    assert pq.read_metadata(path.removeprefix("file://")).row_group(0).column(2).compression == "ZSTD"


def test_the_cards_compression_is_used(local: Desk) -> None:
    local.set_card(compression="none")
    with local.writer() as writer:
        writer.write(rows("a"))
    path = only(only(local.txlogs()).files).path
    assert pq.read_metadata(path.removeprefix("file://")).row_group(0).column(2).compression == "UNCOMPRESSED"


def test_a_value_of_64_mib_passes(local: Desk) -> None:
    value = os.urandom(2**20) * 64
    with local.writer() as writer:
        writer.write(rows("big", value=value))
        writer.write(rows("small"))
    read = {row["key"]: row["value"] for row in local.rows()}
    assert read["big"] == value
    assert read["small"] == b"v"


def test_files_roll_at_the_target_size(desk: Desk) -> None:
    desk.set_card(target_file_size=50_000)
    with desk.writer() as writer:
        for number in range(10):
            writer.write(noisy_rows([f"{number}-{row}" for row in range(20)], 1000))
            assert writer.due() == (number > 1)
    files = only(desk.txlogs()).files
    assert len(files) > 1
    assert sum(file.record_count for file in files) == 200
    assert all(file.size_bytes < 60_000 for file in files)


def test_one_large_table_is_cut_into_files_of_the_target_size(desk: Desk) -> None:
    desk.set_card(target_file_size=100_000)
    keys = [f"{number:04d}" for number in range(1000)]
    with desk.writer() as writer:
        writer.write(noisy_rows(keys, 1000))
    files = only(desk.txlogs()).files
    assert 8 <= len(files) <= 14
    assert [row["key"] for row in desk.rows(files)] == keys


def test_files_roll_at_the_cards_age(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        desk.clock.move(seconds=9)
        writer.write(rows("b"))
        assert not writer.due()
        desk.clock.move(seconds=1)
        assert writer.due()
        writer.write(rows("c"))
    files = only(desk.txlogs()).files
    assert [[row["key"] for row in desk.rows([file])] for file in files] == [["a", "b"], ["c"]]


def test_many_slow_partitions_do_not_hold_more_memory_than_allowed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.files.rolling_writer.MOST_HELD_BYTES", 1_000_000)
    with desk.writer() as writer:
        for number in range(30):
            writer.write(rows(str(number), at=START + timedelta(days=number % 3), value=os.urandom(100_000)))
            assert sum(item.file.memory() for item in writer._files._open.values()) <= 1_000_000
    assert len(desk.keys()) == 30


def test_a_forked_process_publishes_nothing(local: Desk) -> None:
    writer = local.writer()
    writer.write(rows("a"))
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            writer.publish()
        except NotPossible:
            os._exit(17)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    assert local.txlogs() == []
    writer.publish()
    assert local.keys() == ["a"]


def test_a_bad_writer_name_is_refused(desk: Desk) -> None:
    with pytest.raises(ConfigInvalid, match="Ingest"):
        desk.writer("Ingest")


def test_a_folder_without_a_card_is_refused_with_the_command_that_makes_one(desk: Desk) -> None:
    desk.folder.store.delete_many(["card.json"])
    with pytest.raises(NotPossible) as caught:
        desk.writer()
    assert "bookkeeper init" in caught.value.hint


def test_a_data_path_that_needs_interpretation_is_refused(desk: Desk) -> None:
    desk.folder.write_card(card("file:///tmp/100%25"))
    with pytest.raises(PathRefused):
        desk.writer()


def test_a_closed_writer_takes_no_rows(desk: Desk) -> None:
    with desk.writer() as writer:
        pass
    with pytest.raises(NotPossible, match="closed"):
        writer.write(rows("a"))


def test_a_table_made_anew_stops_the_writer(desk: Desk) -> None:
    writer = desk.writer()
    writer.write(rows("a"))
    desk.folder.write_card(replace(desk.folder.card(), table_uuid="00000000-0000-4000-8000-000000000000"))
    with pytest.raises(WrongFolder):
        writer.roll()


def test_a_folder_url_is_enough_to_open_a_writer(local: Desk) -> None:
    with Writer.open(f"{local.root}/_bookkeeper", name="lib") as writer:
        writer.write(rows("a"))
    assert only(local.txlogs()).name.writer == "lib"


def test_a_partition_field_with_a_long_name_in_other_letters_is_a_folder_on_a_disk(local: Desk) -> None:
    field = PartitionField(2, 1000, IdentityTransform(), "наименование_подразделения_отправителя")
    local.set_card(spec=PartitionSpec(field))
    with local.writer() as writer:
        writer.write(rows("k" * 100))
    assert [row["key"] for row in local.rows()] == ["k" * 100]
