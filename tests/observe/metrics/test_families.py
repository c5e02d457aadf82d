"""One list of families a program: what a run serves, the page of metrics, alert rules and code agree with it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from bookkeeper.config.settings import Service
from bookkeeper.console.exposition import text as told_by
from bookkeeper.console.families import COUNTER, GAUGE, Family, exposed
from bookkeeper.history.registry import Registry, spark
from reaper.compactor.compactor import Compacted
from reaper.metrics import Metrics
from reaper.result import Reaped
from tests.observe.metrics.reference import DOC, FAMILIES, PARTS, labels_of, page
from tests.observe.metrics.timeline import ALERTS, names_in, tool
from tests.support.checkpoints import Query, offset
from tests.support.compactor import live, published
from tests.support.folds import damaged
from tests.support.keyed import KEYED, Upserts
from tests.support.lake import Writes
from tests.support.watched import Watched, samples
from writers.http.metrics import FAMILIES as HTTP
from writers.http.metrics import RequestFigures
from writers.metrics import WriterMetrics
from writers.watch.metrics import FAMILIES as WATCH
from writers.watch.metrics import WatchFigures

#: what alert rules of 0.1.0 ask for: they are copied into other repositories
OF_0_1_0 = (
    *("bookkeeper_commits_total", "bookkeeper_consumer_lag_seconds", "bookkeeper_consumer_max_hold_used_ratio"),
    *("bookkeeper_consumer_state", "bookkeeper_disk_free_bytes", "bookkeeper_disk_size_bytes"),
    *("bookkeeper_holes_total", "bookkeeper_last_success_timestamp_seconds", "bookkeeper_looked_timestamp_seconds"),
    *("bookkeeper_marks_bytes", "bookkeeper_oldest_txlog_age_limit_seconds", "bookkeeper_oldest_txlog_age_seconds"),
    *("bookkeeper_pending_limit", "bookkeeper_rejected_txlogs", "bookkeeper_retention_held_back"),
    *("bookkeeper_snapshots", "bookkeeper_table_halted", "bookkeeper_table_ready", "bookkeeper_txlogs_held"),
    *("bookkeeper_txlogs_pending", "bookkeeper_visibility_seconds_bucket"),
    *("reaper_last_success_timestamp_seconds", "writer_waiting"),
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What bookkeeper, reaper, a writer and a server of rows serve once everything has happened that has a metric."""
    root, watched = tmp_path_factory.mktemp("families"), Watched()
    serviced = {"maintained_by": "catalog", "folder": f"{root}/folder", "service": Service(compacts=False)}
    keyed = watched.add(root, "orders", **KEYED, **serviced)
    writer = Upserts(keyed)
    for value in "ab":
        writer.publish(value)
        watched.turn(seconds=70)
    damaged(keyed)
    writer.publish("c")
    watched.turn(2, seconds=70)
    lake = watched.add(root)
    Writes(lake).publish("a")
    lake.put("pending/none.txlog.avro", b"x")
    watched.turn()
    published(lake, live(lake))
    published(lake, live(lake), record_count=99)
    watched.turn(seconds=70)
    query, reaper = Query(lake.root / "checkpoint"), Metrics()
    Registry(lake.folder.store).add(spark("live", query.url, watched.clock.now, by="command"))
    head = lake.table().metadata.current_snapshot_id
    assert head is not None
    query.begin(offset(-1)).done(offset(head))
    watched.look()
    reaper.note("events", Reaped(), watched.clock.now)
    reaper.note_compacted("events", Compacted("own", left_alone={"deletes": 1}), watched.clock.now)
    partition = ("orders", "0")
    kafka = WriterMetrics(
        "w1", "shop.orders", kafka=True, lag={partition: 3}, behind={partition: 2}, stopped={partition: 1}, bad=1
    )
    requests = RequestFigures("events")
    requests.count(200, 0.25)
    drops = WatchFigures("drops", "shop.orders", watched.clock)
    served = told_by(exposed(HTTP, [requests])), told_by(exposed(WATCH, [drops]))
    return watched.ask("/metrics")[1], reaper.text(), kafka.text(), *served


def test_a_run_serves_each_family_of_the_list_with_its_kind_help_and_labels(told: tuple[str, ...]) -> None:
    for (_, _, families), text in zip(PARTS, told, strict=True):
        for family in families:
            assert f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n" in text
        ours = {
            (name, frozenset(dict(labels)))
            for name, labels in samples(text)
            if name.startswith(("bookkeeper_", "reaper_", "writer_"))
        }
        assert {name for name, labels in ours if labels_of(name) != labels} == set()
        served = {name for name, _ in ours}
        assert {family.name for family in families} <= served | {name.removesuffix("_sum") for name in served}


def test_the_page_of_metrics_is_made_of_the_lists() -> None:
    assert DOC.read_text("utf-8") == page(), "python -m tests.observe.metrics.reference"


def test_names_are_once_and_say_kind_and_unit() -> None:
    names = [family.name for _, _, families in PARTS for family in families]
    assert len(names) == len(set(names)) == len(FAMILIES)
    assert not [name for name in names if (FAMILIES[name].kind == COUNTER) != name.endswith("_total")]


def test_prometheus_finds_no_fault_with_names_and_units(told: tuple[str, ...]) -> None:
    for text in told:
        done = subprocess.run([tool(), "check", "metrics"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_alert_rules_ask_only_for_families_and_group_only_by_labels_that_exist() -> None:
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            known = {name: labels_of(name) for name in names_in(rule["expr"])}
            assert None not in known.values(), rule["alert"]
            labels = frozenset({"job", "instance", "alertname"}).union(*(found or () for found in known.values()))
            asked = {label for by in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in by.split(", ")}
            asked |= set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
            assert asked <= labels, (rule["alert"], asked - labels)


def test_what_alert_rules_of_0_1_0_ask_for_is_still_there() -> None:
    assert not [name for name in OF_0_1_0 if labels_of(name) is None]


@pytest.mark.parametrize("page", sorted(Path(DOC.parent).rglob("*.md")), ids=lambda path: path.name)
def test_docs_name_only_metrics_that_exist(page: Path) -> None:
    named = set(re.findall(r"`((?:bookkeeper|reaper|writer)_[a-z_]+)(?:\{[^`]*)?`", page.read_text("utf-8")))
    tables = {"bookkeeper_places"}  # of places in a database
    assert not {name for name in named - tables if labels_of(name) is None and FAMILIES.get(name) is None}


def test_a_row_without_a_value_has_no_series_and_a_family_without_one_is_left_out() -> None:
    class One:
        labels = ("a",)

    def served(source: object, *labels: str) -> list[tuple[dict[str, str], float]]:
        family: Family[One] = Family("x", GAUGE, "help", ("table", *labels), lambda it: source)
        return [(item.labels, item.value) for metric in exposed([family], [One()]) for item in metric.samples]

    assert served(None) == [] and served({("k",): None}, "kind") == [] and served({}, "kind") == []
    assert served(0) == [({"table": "a"}, 0)]
    assert served({("k",): 2}, "kind") == [({"table": "a", "kind": "k"}, 2)]
    hidden: Family[One] = Family("x", GAUGE, "help", ("table",), lambda it: 1, lambda it: False)
    assert list(exposed([hidden], [One()])) == []
