"""
Every alert fires for what it is for, on the daemon's own pieces and by Prometheus' own rule engine, and clears when
that is mended; a table that is fine has none.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.console.exposition import text
from bookkeeper.console.families import exposed
from tests.observe.metrics.scenes import SCENES, Scene, Stage, reaped
from tests.observe.metrics.timeline import ALERTS, Firing, Timeline, names_in, tool, wrong
from tests.support.watched import Samples, Watched, quick_samples
from writers.http.metrics import FAMILIES as HTTP
from writers.http.metrics import RequestFigures
from writers.metrics import WriterMetrics as WriterFigures
from writers.watch.metrics import FAMILIES as WATCH
from writers.watch.metrics import WatchFigures

CAUSE, CURE, END = 5, 36, 52
#: what a rule says of ten thousand snapshots is tried with fifty, what it says of a thousand files with twenty
RULES = (
    ALERTS.read_text("utf-8")
    .replace("bookkeeper_snapshots) > 10000", "bookkeeper_snapshots) > 50")
    .replace("delta(bookkeeper_data_files[30m])) > 1000", "delta(bookkeeper_data_files[30m])) > 20")
)
RUNBOOK = (ALERTS.parents[1] / "docs" / "operate.md").read_text("utf-8")
UP = ("up", frozenset({("job", "bookkeeper"), ("instance", "a:9464")}))


@dataclass
class Play:
    """All scenes at once, minute by minute."""

    root: Path
    watched: Watched = field(default_factory=Watched)
    stages: dict[str, Stage] = field(default_factory=dict)
    #: what the page says is wrong, by minute
    said: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)

    def run(self) -> Timeline:
        self._begin()
        timeline = Timeline(self.watched.clock.now.timestamp())
        for minute in range(END + 1):
            self._minute(minute)
            timeline.take(self._scraped(minute))
            if minute in (CAUSE - 1, CAUSE + 29, END):
                self.said[minute] = self.watched.troubles()
        return timeline

    def _begin(self) -> None:
        from reaper.metrics import Metrics

        self.reaper, self.writer = Metrics(), WriterFigures("w1", "shop.orders")
        self.kafka = WriterFigures("orders-00", "shop.orders", kafka=True)
        self.http = RequestFigures("orders")
        self.drops = WatchFigures("drops", "shop.orders", self.watched.clock)
        self.watched.inspector.usage = lambda path: (100, 95, 5) if self._broken("disk-full") in path else (100, 10, 90)
        for scene in SCENES:
            self.watched.add(self.root, scene.table, reload=scene.reload, **scene.settings)
            self.stages[scene.table] = stage = Stage(self.watched, scene.table, self.reaper)
            stage.publish()
        self.watched.turn()
        for stage in self.stages.values():
            stage.register()
            reaped(stage)
        self.watched.look()

    def _broken(self, table: str) -> str:
        return table if self.stages[table].broken else "nothing of the kind"

    def _act(self, scene: Scene, minute: int) -> None:
        stage = self.stages[scene.table]
        if minute == CAUSE + scene.delay:
            stage.broken = True
            scene.cause(stage)
        if minute == CURE:
            stage.broken = False
            scene.cure(stage)
        if minute == CURE + 3:
            scene.later(stage)
        if stage.broken:
            scene.lasting(stage)
        if scene.reaped or not stage.broken:
            reaped(stage)

    def _minute(self, minute: int) -> None:
        """A minute goes by, most of it before anything happens."""
        for scene in SCENES:
            if self.stages[scene.table].broken:
                scene.early(self.stages[scene.table])
        self.watched.clock.move(seconds=58)
        for scene in SCENES:
            self._act(scene, minute)
        if minute % 10 == 7:
            for name in ("fine", "behind", "at-risk"):
                self.stages[name].publish()
        self.watched.turn(seconds=2)
        for scene in SCENES:
            stage = self.stages[scene.table]
            if scene.reads or not stage.broken:
                stage.catch_up()
        self.watched.look()

    def _scraped(self, minute: int) -> Samples:
        down = CAUSE <= minute < CURE
        (self.writer.waits if down else self.writer.goes_on)()
        self._copy(minute - CAUSE + 1 if down else 0)
        self._ask_over_http(down)
        self._drop(down)
        served = text(exposed(HTTP, [self.http])) + text(exposed(WATCH, [self.drops]))
        texts = (self.watched.ask("/metrics")[1], self.reaper.text(), self.writer.text(), self.kafka.text(), served)
        return quick_samples("".join(texts)) | {UP: float(not down)}

    def _ask_over_http(self, bad: bool) -> None:
        """A hundred requests a minute, of which in bad ones some are not taken and some are refused."""
        for status, count in {200: 100, 503: 20, 400: 5}.items():
            for _ in range(count if bad or status == 200 else 0):
                self.http.count(status, 0.25)

    def _drop(self, bad: bool) -> None:
        """In bad minutes an object is not taken."""
        now = self.watched.clock.now
        self.drops.oldest = (self.drops.oldest or now - timedelta(minutes=15)) if bad else None

    def _copy(self, bad_minutes: int) -> None:
        """Two partitions of a topic: in bad minutes one stopped, and the other one falls behind."""
        stopped, slow = ("orders", "0"), ("orders", "1")
        self.kafka.stopped = {stopped: 1} if bad_minutes else {}
        self.kafka.lag = {slow: 2000 * bad_minutes}
        self.kafka.behind = {slow: 1200 if bad_minutes else 0}
        self.kafka.bad += bad_minutes > 0


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    return Play(tmp_path_factory.mktemp("alerts"))


@pytest.fixture(scope="module")
def timeline(play: Play) -> Timeline:
    return play.run()


def fires(name: str, **labels: str) -> Firing:
    severity = re.search(rf"alert: {name}\n(?:.*\n)*?\s+severity: (\w+)", RULES)
    assert severity is not None
    about = {"alertname": name, "alertstate": "firing", "severity": severity[1], **labels}
    return frozenset(about.items())


def firing(after: int) -> list[Firing]:
    """What shall fire so many minutes after the cause."""
    return [
        fires(name, table=scene.table, **labels)
        for scene in SCENES
        if scene.after == after
        for name, labels in scene.alerts
    ]


#: of no table
WHOLE = [
    fires("BookkeeperDown", job="bookkeeper", instance="a:9464"),
    fires("WriterWaits", writer="w1"),
    fires("KafkaPartitionStopped", topic="orders", partition="0"),
    fires("KafkaBehind", topic="orders"),
    fires("KafkaLagGrows", topic="orders"),
    fires("KafkaBadMessages", writer="orders-00"),
    fires("HttpUnavailable", table="orders"),
    fires("HttpRefused", table="orders", status="400"),
    fires("WatchBehind", writer="drops"),
]
ALL, GONE = 'ALERTS{alertstate="firing"}', 'ALERTS{alertname="BookkeeperTxlogGone",alertstate="firing"}'
EXPECTED = {
    (ALL, CAUSE - 1): [],
    (GONE, CAUSE + 5): firing(5),
    (ALL, CAUSE + 29): [*firing(29), *WHOLE],
    (ALL, END): [],
}


def test_every_alert_fires_for_its_cause_alone_and_clears_when_that_is_mended(
    timeline: Timeline, tmp_path: Path
) -> None:
    assert wrong(timeline, RULES, EXPECTED, tmp_path) == ""


def test_the_backlog_of_a_recovered_outage_is_not_slow(timeline: Timeline, tmp_path: Path) -> None:
    """Its txlogs are old when they become visible, and all of them at once."""
    slow = 'ALERTS{alertname="BookkeeperSlow",alertstate="firing",table!="slow"}'
    assert wrong(timeline, RULES, {(slow, minute): [] for minute in range(CURE, END + 1)}, tmp_path) == ""


def built(job: str, instance: str = "a:9464", up: float | None = 1) -> Samples:
    """A scrape of a bookkeeper; 0 where it did not answer, nothing where Prometheus has no such target."""
    where = frozenset({("job", job), ("instance", instance)})
    told = where | {("version", "0.1.0"), ("python", "3.11")}
    return ({} if up is None else {("up", where): up}) | ({("bookkeeper_build_info", told): 1.0} if up else {})


DOWN = 'ALERTS{alertname="BookkeeperDown",alertstate="firing"}'


@pytest.mark.parametrize(
    ("before", "after", "labels"),
    [
        pytest.param(built("lake"), built("lake", up=0), {"job": "lake", "instance": "a:9464"}, id="another job name"),
        pytest.param(
            built("lake") | built("lake", "b:9464"),
            built("lake", up=0) | built("lake", "b:9464"),
            {"job": "lake", "instance": "a:9464"},
            id="one of two",
        ),
        pytest.param(built("bookkeeper"), built("bookkeeper", up=None), {"job": "bookkeeper"}, id="its target is gone"),
        pytest.param(built("node", up=0), built("node", up=0), {}, id="none was ever seen"),
        pytest.param(built("lake"), built("lake", "b:9464"), None, id="it came back at another address"),
    ],
)
def test_a_bookkeeper_that_is_gone_is_down_whatever_prometheus_calls_it(
    before: Samples, after: Samples, labels: dict[str, str] | None, tmp_path: Path
) -> None:
    timeline = Timeline(0, [before] * 10 + [after] * 20)
    down = [] if labels is None else [fires("BookkeeperDown", **labels)]
    early = down if before == after else []
    assert wrong(timeline, RULES, {(DOWN, 9): early, (DOWN, 25): down}, tmp_path) == ""


def copying(instance: str = "a:9466", up: float | None = 1) -> Samples:
    """A scrape of `writer kafka`, `writer serve` and `writer watch` in one, as `built` is one of a bookkeeper."""
    where = frozenset({("job", "copy"), ("instance", instance)})
    told = where | {("writer", "orders-00")}
    families = ("writer_kafka_bad_messages_total", "writer_http_requests_total", "writer_watch_objects_total")
    return ({} if up is None else {("up", where): up}) | ({(name, told): 0.0 for name in families} if up else {})


DOWN_ALERTS = ("KafkaWriterDown", "HttpWriterDown", "WatchWriterDown")


@pytest.mark.parametrize(
    ("before", "after", "labels"),
    [
        pytest.param(copying(), copying(up=0), {"job": "copy", "instance": "a:9466"}, id="the only one"),
        pytest.param(
            copying() | copying("b:9466"),
            copying() | copying("b:9466", up=0),
            {"job": "copy", "instance": "b:9466"},
            id="one of two",
        ),
        pytest.param(copying(), copying(up=None), {"job": "copy"}, id="its target is gone"),
        pytest.param(copying(), copying("b:9466"), None, id="it came back at another address"),
        pytest.param(copying(up=0), copying(up=0), None, id="none ever copied"),
    ],
)
def test_a_copy_that_is_gone_is_down(
    before: Samples, after: Samples, labels: dict[str, str] | None, tmp_path: Path
) -> None:
    timeline = Timeline(0, [before] * 10 + [after] * 20)
    expected = dict[tuple[str, int], list[Firing]]()
    for name in DOWN_ALERTS:
        alert = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
        expected |= {(alert, 9): [], (alert, 25): [] if labels is None else [fires(name, **labels)]}
    assert wrong(timeline, RULES, expected, tmp_path) == ""


def counted(name: str, count: float | None, instance: str) -> Samples:
    return (
        {} if count is None else {(name, frozenset({("table", "t"), ("writer", "w"), ("instance", instance)})): count}
    )


@pytest.mark.parametrize(
    ("metric", "alert", "label"),
    [
        ("writer_kafka_bad_messages_total", "KafkaBadMessages", ("writer", "w")),
        ("bookkeeper_holes_total", "BookkeeperTxlogGone", ("table", "t")),
    ],
)
@pytest.mark.parametrize(
    ("counts", "fired"),
    [
        pytest.param([None] * 30 + [3] * 40, [(31, True), (60, False)], id="at its first scrape"),
        pytest.param([3] * 30 + [None] * 20 + [3] * 30, [(52, False)], id="Prometheus was down"),
        pytest.param([3] * 30 + [5] * 40, [(31, True), (60, False)], id="later"),
    ],
)
def test_what_was_counted_before_the_first_scrape_is_told(
    metric: str,
    alert: str,
    label: tuple[str, str],
    counts: list[float | None],
    fired: list[tuple[int, bool]],
    tmp_path: Path,
) -> None:
    """By a process that began anew, at another address."""
    before: Samples = {("up", frozenset({("job", "x"), ("instance", "a")})): 1.0}
    timeline = Timeline(0, [before | counted(metric, count, "b") for count in counts])
    told = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    expected = {(told, minute): [fires(alert, **dict([label]))] if does else [] for minute, does in fired}
    assert wrong(timeline, RULES, expected, tmp_path) == ""


def steady(lag: float) -> Samples:
    return {("writer_kafka_lag_messages", frozenset({("topic", "t"), ("partition", "0"), ("writer", "w")})): lag}


@pytest.mark.parametrize(
    "lags",
    [
        pytest.param([20_000] * 60, id="as many all the time"),
        pytest.param([0] * 20 + [50_000] * 40, id="a burst"),
        pytest.param([90_000 - 1000 * minute for minute in range(60)], id="it catches up"),
        pytest.param([100 * minute for minute in range(60)], id="few"),
    ],
)
def test_a_lag_that_does_not_grow_on_is_no_alert(lags: list[float], tmp_path: Path) -> None:
    grows = 'ALERTS{alertname="KafkaLagGrows",alertstate="firing"}'
    expected = {(grows, minute): list[Firing]() for minute in range(60)}
    assert wrong(Timeline(0, [*map(steady, lags)]), RULES, expected, tmp_path) == ""


def test_an_alert_stays_until_the_bookkeeper_that_told_of_it_is_down(tmp_path: Path) -> None:
    """Its last sample counts for five minutes where nothing marks it as stale: until minute 14."""
    halted: Samples = {("bookkeeper_table_halted", frozenset({("table", "events")})): 1.0}
    timeline = Timeline(0, [built("lake") | halted] * 10 + [built("lake", up=0)] * 20)
    alert = 'ALERTS{alertname="BookkeeperTableHalted",alertstate="firing"}'
    down = [fires("BookkeeperDown", job="lake", instance="a:9464")]
    stays = {(alert, 18): [fires("BookkeeperTableHalted", table="events")], (DOWN, 18): down}
    assert wrong(timeline, RULES, stays | {(alert, 25): [], (DOWN, 25): down}, tmp_path) == ""


#: what takes more than one look at the daemon to tell
NOT_SAID = {
    "BookkeeperSlow",
    "BookkeeperConflicts",
    "BookkeeperManySnapshots",
    "BookkeeperRewritesBehind",
    "BookkeeperRewritesRejected",
    "ReaperNotRunning",
}


def test_the_page_says_the_same_and_what_to_do(timeline: Timeline, play: Play) -> None:
    # On the page a txlog that was gone is news for an hour.
    assert (play.said[CAUSE - 1], [trouble["table"] for trouble in play.said[END]]) == ([], ["gone"])
    said = {(trouble["table"], trouble["alert"]) for trouble in play.said[CAUSE + 29]}
    fired = {(scene.table, name) for scene in SCENES if scene.after == 29 for name, _ in scene.alerts}
    # At risk of being cut off says more than being behind.
    fired -= {(table, name) for table, name in fired if name in NOT_SAID} | {("at-risk", "BookkeeperConsumerBehind")}
    assert said == fired | {("gone", "BookkeeperTxlogGone")}
    assert all(trouble["what"] and trouble["do"] for trouble in play.said[CAUSE + 29])


def test_every_alert_has_a_scene() -> None:
    acted = {name for scene in SCENES for name, _ in scene.alerts} | {dict(one)["alertname"] for one in WHOLE}
    assert acted | {*DOWN_ALERTS} == set(re.findall(r"alert: (\w+)", RULES))


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("bookkeeper_table_halted) == 1", "bookkeeper_table_halted) == 2"),
        ("bookkeeper_txlogs_held", "bookkeeper_txlogs_hold"),
        ("> 262144", "> 2621440"),
        ("bookkeeper_rejected_txlogs) > 0", "bookkeeper_rejected_txlogs) >= 0"),
    ],
)
def test_a_rule_that_is_wrong_is_found(timeline: Timeline, tmp_path: Path, written: str, instead: str) -> None:
    assert written in RULES
    assert "FAILED" in wrong(timeline, RULES.replace(written, instead), EXPECTED, tmp_path)


def test_rules_name_only_metrics_that_exist(timeline: Timeline) -> None:
    there = {name for minute in timeline.minutes for name, _ in minute}
    assert names_in(RULES) <= there, names_in(RULES) - there


def test_prometheus_accepts_the_rules() -> None:
    done = subprocess.run([tool(), "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", re.findall(r"alert: (\w+)", RULES))
def test_every_alert_says_what_is_wrong_and_where_to_read_what_to_do(name: str) -> None:
    rule = RULES[RULES.index(f"alert: {name}\n") :].split("- alert:")[0]
    assert re.search(r"severity: (critical|warning)\n", rule)
    assert re.search(r'summary: ".+"', rule) and re.search(r'description: ".+"', rule)
    assert f'runbook_url: "docs/operate.md#{name.lower()}"' in rule
    assert f"\n## {name}\n" in RUNBOOK


def test_the_runbook_knows_no_alert_that_does_not_exist() -> None:
    alerts = RUNBOOK[RUNBOOK.index("\n# Alerts\n") :].split("\n# ", 2)[1]
    assert re.findall(r"^## (\w+)$", alerts, re.MULTILINE) == re.findall(r"alert: (\w+)", RULES)
