"""
Spark does something to the table between any two steps of a tick: each thing it can do, at each kind of step.
"""

import pytest

from bookkeeper.errors import HistoryChanged
from bookkeeper.ledger.load import load
from tests.support.faults import Faults
from tests.support.lake import Writes
from tests.support.races import SparkLake

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

#: before the load, between load and commit, between commit and marks.json, and while txlogs are deleted
SPOTS = ("load_table", "create metadata", "commit_table", "folder/marks.json", "delete folder/pending")
SCHEMA = {
    "adds a column": "ALTER TABLE {table} ADD COLUMN new{n} string",
    "drops a column": "ALTER TABLE {table} DROP COLUMN text{n}",
    "renames a column": "ALTER TABLE {table} RENAME COLUMN text{n} TO other{n}",
    "widens a column": "ALTER TABLE {table} ALTER COLUMN small{n} TYPE bigint",
}
SPEC = {
    "adds a partition field": "ALTER TABLE {table} ADD PARTITION FIELD bucket(1{n}, key)",
    "drops a partition field": "ALTER TABLE {table} DROP PARTITION FIELD days(timestamp)",
}
WORK = {
    "rewrites data files": "CALL races.system.rewrite_data_files(table => '{ident}', "
    "options => map('min-input-files', '2'))",
    "rewrites manifests": "CALL races.system.rewrite_manifests('{ident}')",
    "expires snapshots": "CALL races.system.expire_snapshots(table => '{ident}', older_than => TIMESTAMP '{now}', "
    "retain_last => 1)",
    "tags": "ALTER TABLE {table} CREATE TAG tag{n}",
    "branches": "ALTER TABLE {table} CREATE BRANCH branch{n}",
}
INSERT = "INSERT INTO {table} (timestamp, key) VALUES (TIMESTAMP '{now}', 'spark-{n}')"


class Race:
    """A bookkeeper in whose ticks another program acts."""

    def __init__(self, queue: SparkLake) -> None:
        self.queue, self.faults = queue, Faults()
        self.book = queue.fresh(self.faults)
        self.writers = [Writes(queue, name) for name in ("w1", "w2")]
        self.expected: list[str] = []

    def publish(self, number: int) -> None:
        for writer in self.writers:
            key = f"{writer.name.writer}-{number}"
            writer.goes_on(b"%d" % (number + 1), key)
            self.expected.append(key)

    def tick(self) -> None:
        self.book.tick(self.queue.clock.now)


@pytest.fixture
def race(queue: SparkLake) -> Race:
    made = Race(queue)
    for number in range(100, 103):  # something to rewrite, expire and tag
        made.publish(number)
        made.tick()
    return made


def interleaved(race: Race, statement: str, spots: tuple[str, ...] = SPOTS, first: int = 0) -> None:
    for number, spot in enumerate(spots, first):
        race.publish(number)
        race.faults.between(spot, lambda number=number: race.queue.sql(statement, n=number))  # type: ignore[misc]
        race.tick()
        assert not race.faults.hooks, f"no step of the tick is called {spot}"
    race.queue.settle()


def is_sound(race: Race) -> None:
    assert race.queue.seen() == sorted(race.expected)
    assert (race.queue.pending(), race.queue.rejected(), race.queue.wrong()) == ([], {}, [])


@pytest.mark.parametrize("what", WORK)
def test_spark_works_on_the_table_between_any_two_steps(race: Race, what: str) -> None:
    interleaved(race, WORK[what])
    is_sound(race)


@pytest.mark.parametrize("what", SCHEMA)
def test_spark_changes_the_schema_between_any_two_steps(race: Race, what: str) -> None:
    interleaved(race, SCHEMA[what], SPOTS[:4])
    is_sound(race)


def test_spark_adds_and_drops_partition_fields_between_any_two_steps(race: Race) -> None:
    interleaved(race, SPEC["adds a partition field"])
    interleaved(race, SPEC["drops a partition field"], SPOTS[2:3], first=len(SPOTS))
    is_sound(race)
    day = f"{race.queue.clock.now:%Y-%m-%d}"
    found = race.queue.sql("SELECT key FROM {table} WHERE timestamp >= TIMESTAMP '{day} 00:00:00'", day=day)
    assert len(found) == len(race.expected)  # rows of every spec are found by a filter


def test_spark_appends_and_the_reaper_runs_between_any_two_steps(race: Race) -> None:
    for number, spot in enumerate(SPOTS):
        race.publish(number)
        race.expected.append(f"spark-{number}")
        race.faults.between(spot, lambda number=number: race.queue.sql(INSERT, n=number))  # type: ignore[misc]
        race.tick()
        race.publish(number + 50)
        race.faults.between(spot, race.queue.reap)
        race.tick()
        assert not race.faults.hooks, spot
    race.queue.settle()
    race.queue.reap()
    is_sound(race)


@pytest.mark.parametrize("spot", SPOTS)
def test_a_rollback_halts_the_table_says_the_command_and_after_it_the_table_goes_on(race: Race, spot: str) -> None:
    """Rows of the abandoned snapshots are out, no others; what is pending waits."""
    queue = race.queue
    kept = queue.table().metadata.snapshots[-2].snapshot_id
    race.publish(0)
    rollback = f"CALL races.system.rollback_to_snapshot('{{ident}}', {kept})"
    race.faults.between(spot, lambda: queue.sql(rollback))
    with pytest.raises(HistoryChanged) as halted:
        for _ in range(3):
            race.tick()
    assert "bookkeeper accept-rollback" in halted.value.hint
    committed = set(queue.keys())
    waiting = {f"{name}-0" for name in ("w1", "w2")} if queue.pending() else set()
    view, _, _ = load(race.book.ledger, queue.folder, accept_rollback=True)
    queue.folder.publish_marks(race.book.ledger.record(view, view.marks, "accept-rollback").marks_copy, even_older=True)
    race.publish(1)
    queue.settle()
    assert set(queue.seen()) == committed | waiting | {"w1-1", "w2-1"}
    assert queue.wrong() == []
