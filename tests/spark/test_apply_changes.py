"""
A copy of a keyed table that is kept by its stream equals the table, whatever was expired, folded or interrupted.
"""

import functools
import random
from contextlib import ExitStack

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bookkeeper.errors import NotPossible
from bookkeeper.history.registry import Registry
from bookkeeper.stores.open import open_store
from spark_jobs import apply_changes, job
from spark_jobs.table import main_history
from tests.support.configured import configured
from tests.support.folds import fold
from tests.support.keyed import COLUMNS
from tests.support.lake import Lake
from writers import Writer

KEYS = 12


class Copy:
    """The job, run to its end whenever a test asks."""

    def __init__(self, spark, queue, folder, monkeypatch):
        self.spark, self.checkpoint = spark, folder / "checkpoint"
        catalog = queue.catalog_settings.name
        self.source, self.target = f"{catalog}.demo.events", f"{catalog}.marts.events"
        self.config = configured(queue)
        monkeypatch.setattr(job, "begin", lambda *_: spark)
        monkeypatch.setattr(type(spark), "stop", lambda _: None)

    def run(self, exit_code=0):
        """One run of the job, which drains the stream."""
        words = ["--config", self.config, "--target", "marts.events", "--checkpoint", self.checkpoint]
        done = CliRunner().invoke(apply_changes.main, [*map(str, words), "--trigger", "available-now"])
        assert done.exit_code == exit_code, done.output
        return done.output

    def rows(self, name=None):
        """The rows of the copy; of the table, by name."""
        return sorted(tuple(row) for row in self.spark.table(name or self.target).collect())

    def values(self):
        return {key: value for key, value, *_ in self.rows()}

    def check(self, expected):
        assert self.values() == expected
        assert self.rows() == self.rows(self.source)


class Source:
    """Two writers, each with keys of its own, and the replay of what they did."""

    def __init__(self, queue, stack):
        self.queue, self.state, self.random, self.count = queue, {}, random.Random(17), 0
        self.writers = [self._open(stack, "even", "last"), self._open(stack, "odd", "all")]

    def _open(self, stack, name, keep):
        return stack.enter_context(Writer.open(self.queue.folder, name, clock=lambda: self.queue.clock.now, keep=keep))

    def put(self, key, by="upsert"):
        self.count += 1
        value = f"{key}-{self.count}"
        getattr(self.writers[key % 2], by)(pa.table({"id": [key], "value": [value]}))
        self.state[key] = value

    def delete(self, key):
        self.writers[key % 2].delete(pa.table({"id": [key]}))
        self.state.pop(key, None)

    def publish(self):
        """Two txlogs of each writer in one commit, with random steps, deletes and inserts of what is not there."""
        for _ in range(2):
            for _ in range(14):
                key = self.random.randrange(KEYS)
                if key not in self.state:
                    self.put(key, self.random.choice(["write", "upsert"]))
                elif self.random.random() < 0.4:
                    self.delete(key)
                else:
                    self.put(key)
                if self.random.random() < 0.3:
                    self.writers[key % 2].roll()
            for writer in self.writers:
                writer.publish()

    def commit(self, book):
        self.publish()
        self.queue.tick(book)
        assert not self.queue.pending() and not self.queue.rejected()


@pytest.fixture
def source(keyed):
    with ExitStack() as stack:
        yield Source(keyed, stack)


@pytest.fixture
def copy(spark, keyed, tmp_path, monkeypatch):
    return Copy(spark, keyed, tmp_path, monkeypatch)


def test_a_copy_equals_the_table_at_each_end_of_the_stream(spark, keyed, source, copy):
    """Its first snapshots are expired, and their deletes folded, when the copy is made; the stream is restarted."""
    book = keyed.book()
    # Of keys that nothing touches any more when the stream begins.
    for key in (KEYS, KEYS + 1, KEYS + 2):
        source.put(key)
    source.commit(book)
    source.delete(KEYS)
    for _ in range(2):
        source.commit(book)
    assert fold(keyed).plan is not None
    source.commit(book)
    expire(spark, keyed)
    assert main_history(spark, copy.source)[-1].parent_id is not None
    copy.run()
    copy.check(source.state)
    (consumer,) = Registry(open_store(keyed.made.folder)).all()
    assert consumer.checkpoint == f"file://{copy.checkpoint}"

    for turn in range(5):
        source.commit(book)
        if turn in (1, 3):
            assert fold(keyed).plan is not None
        if turn != 0:
            copy.run()
            copy.check(source.state)

    expire(spark, keyed)
    copy.checkpoint = copy.checkpoint.with_name("new")
    said = copy.run(exit_code=1)
    assert "has not kept what was committed after it" in said and f"DROP TABLE {copy.target}" in said


def expire(spark, keyed):
    """All snapshots but the newest."""
    spark.sql(
        f"CALL {keyed.catalog_settings.name}.system.expire_snapshots(table => 'demo.events', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )


def test_a_merge_that_is_interrupted_before_spark_notes_it_is_done_again_and_changes_nothing(
    keyed, source, copy, monkeypatch
):
    merged, crashes, apply = [], [True], apply_changes.apply

    def observed(changes, target, batch, number):
        before = copy.rows()
        apply(changes, target, batch, number)
        merged.append((number, sorted(map(repr, batch.collect())), before, copy.rows()))
        if crashes:
            raise RuntimeError("crashed after the merge")

    book = keyed.book()
    copy.run()
    for key in range(6):
        source.put(key, "write")
    for writer in source.writers:
        writer.publish()
    source.delete(2)
    source.put(3)
    source.delete(4)
    source.put(4)
    for writer in source.writers:
        writer.publish()
    keyed.tick(book)
    monkeypatch.setattr(apply_changes, "apply", observed)
    copy.run(exit_code=1)
    copy.check(source.state)
    source.put(2, "write")
    source.delete(5)
    source.delete(0)
    source.commit(book)

    crashes.clear()
    copy.run()
    first, again, last = merged
    assert first[:2] == again[:2] and again[2] == again[3] == first[3]
    assert last[0] == first[0] + 1
    copy.check(source.state)


def test_a_copy_that_was_made_and_whose_stream_never_began_goes_on_behind_the_rows_it_has(
    spark, keyed, source, copy, monkeypatch
):
    book, begin = keyed.book(), apply_changes.begin

    def killed(name):
        if name == "seed":
            raise KeyboardInterrupt

    source.commit(book)
    with monkeypatch.context() as patch:
        patch.setattr(apply_changes, "begin", functools.partial(begin, step=killed))
        copy.run(exit_code=1)
    assert copy.values() == source.state
    source.commit(book)
    assert fold(keyed).plan is not None
    assert "the output has the rows of snapshot" in copy.run()
    copy.check(source.state)
    # The copy is dropped, and its stream goes on: it is made of the rows of now.
    spark.sql(f"DROP TABLE {copy.target}")
    source.commit(book)
    copy.run()
    copy.check(source.state)


def test_a_table_without_deletes_or_order_in_its_stream_and_a_target_of_another_table_are_refused(spark, keyed, copy):
    def table(name, **more):
        Lake(keyed.root, keyed.clock, COLUMNS, catalog=keyed.catalog_settings.name, identifier=f"demo.{name}",
             partition_by=(), **more)  # fmt: skip
        return f"{keyed.catalog_settings.name}.demo.{name}"

    for name, words in (
        (table("plain"), "append-only"),
        (table("no_op", key=("id",), order_column="seq"), "has no op-column"),
        (table("no_order", key=("id",), op_column="op"), "has no order-column"),
    ):
        with pytest.raises(NotPossible, match=words) as refused:
            apply_changes.changes_of(spark, name)
        assert "bookkeeper init --key" in refused.value.hint

    changes = apply_changes.changes_of(spark, copy.source)
    for target, words in ((f"{keyed.catalog_settings.name}.demo.plain", "is no copy of"), (copy.source, "of itself")):
        with pytest.raises(NotPossible, match=words):
            apply_changes.Copy(spark, changes, target).has(None)


def test_a_version_that_is_not_newer_is_skipped_and_the_newest_of_a_batch_counts(spark, keyed, copy):
    changes = apply_changes.changes_of(spark, copy.source)
    copy.run()

    def applied(*rows):
        batch = spark.createDataFrame(list(rows), spark.table(copy.source).schema)
        apply_changes.apply(changes, copy.target, batch, 0)
        return copy.values()

    assert applied((1, "new", "U", 5), (1, "old", "U", 4), (1, None, "D", 3)) == {1: "new"}
    assert applied((1, "old", "U", 4), (2, "new", "I", 4)) == {1: "new", 2: "new"}
    assert applied((1, None, "D", 4), (2, "old", "I", None)) == {1: "new", 2: "new"}
    assert applied((1, "newer", "U", 6), (1, None, "D", 7), (2, "newer", "U", 6), (2, None, "D", 5)) == {2: "newer"}
    assert applied((1, "again", "I", 9), (1, None, "D", 8), (3, "no order", "U", None)) == {
        1: "again", 2: "newer", 3: "no order"
    }  # fmt: skip


def test_new_columns_end_the_stream_until_the_copy_has_them_too(spark, keyed, copy):
    changes = apply_changes.changes_of(spark, copy.source)
    copy.run()
    batch = spark.table(copy.source).limit(0)
    batch.collect()
    spark.sql(f"ALTER TABLE {copy.source} ADD COLUMN note string")
    with pytest.raises(NotPossible, match="have changed since the stream began"):
        apply_changes.apply(changes, copy.target, batch, 0)
    said = copy.run(exit_code=1)
    assert "has other columns" in said and "ALTER TABLE" in said
    spark.sql(f"ALTER TABLE {copy.target} ADD COLUMN note string")
    copy.run()
