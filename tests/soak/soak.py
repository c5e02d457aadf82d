"""
One soak: the processes start, are killed by seed and started again, a status line each minute, and the account.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from benchmarks.support.harness import percentile
from bookkeeper.history.registry import JOB, Registry
from bookkeeper.history.registry import spark as query
from tests.soak.account import Account, look, settle, work
from tests.soak.journal import txlogs
from tests.soak.plan import COPY, QUERIES, SPARK, Ground, Plan
from tests.soak.status import HEADS, Status, Watch, shown
from tests.support.crew import Crew

DRAIN_SECONDS = 900
#: the load of a soak that should be shorter ends by then
LATEST_SECONDS = 300
JOBS_EVERY, LOOKS_EVERY = 1200, 600


@dataclass
class Soak:
    """A soak under way; `stopped` says whether its load shall end now."""

    plan: Plan
    stopped: Callable[[], bool] = lambda: False
    rng: Random = field(init=False)
    account: Account = field(default_factory=Account)
    kills: Counter[str] = field(default_factory=Counter)
    latest: list[str] = field(default_factory=list)
    jobs: Counter[str] = field(default_factory=Counter)

    #: when the writers were stopped, ms
    quiet: float = 0.0

    def __post_init__(self) -> None:
        self.rng = Random(self.plan.seed)
        self.ground = Ground.make(self.plan)
        self.crew = Crew(
            self.plan.commands(), self.plan.root / "logs", nice=5 if self.plan.light else 0, grace=180, forked=False
        )

    def run(self) -> bool:
        """All of it; whether the account is right."""
        try:
            with Watch(self.plan.root / "cat.db") as watch:
                self.status = Status(self.ground, self.crew, watch, time.monotonic())
                self._start()
                self._load()
                self._end()
                self._line()
            settle(self.ground, self.account, self.quiet)
            self.account.wrong += watch.wrong
        finally:
            self.crew.close()
        self._report()
        return not self.account.wrong

    def _start(self) -> None:
        """
        Consumers first: what they have not seen must not expire before they are known. All are at work when it returns.
        """
        if self.plan.spark:
            registry = Registry(self.ground.txlogs("events").store)
            registry.add(query(SPARK, self.plan.checkpoint, datetime.now(UTC), by=JOB))
        for role in self.crew.commands:
            if role.partition("-")[2] == "0":
                self._await_consumer()
            self.crew.start(role)
        self._await("each writer has published", lambda: all(map(txlogs, self.plan.journals)))

    def _await_consumer(self) -> None:
        registry = Registry(self.ground.txlogs("events").store)
        deadline = time.monotonic() + 60
        while COPY not in {item.name for item in registry.all()} and time.monotonic() < deadline:
            time.sleep(0.2)

    def _load(self) -> None:
        """Until the time is over: kills, restarts, a line each minute, a job on Spark now and then."""
        began = time.monotonic()
        kill, spark = began + self.plan.pause(self.rng), began + self.plan.spark_pause(self.rng)
        line, next_look, job, turns = began + 60, began + LOOKS_EVERY, began + JOBS_EVERY / 2, 0
        while self._goes_on((now := time.monotonic()) - began):
            self._look_after()
            if now >= kill:
                self._kill(self.rng.choice([role for role in self.crew.commands if role != SPARK]))
                kill = now + self.plan.pause(self.rng)
            if self.plan.spark and now >= spark:
                self._kill(SPARK)
                spark = now + self.plan.spark_pause(self.rng)
            if self.plan.spark and now >= job:
                self.crew.start("job", self.plan.jobs()[turns % 2])
                job, turns = now + JOBS_EVERY, turns + 1
            if now >= line:
                self._line()
                line += 60
            if now >= next_look:
                self._look()
                next_look += LOOKS_EVERY
            time.sleep(0.2)

    def _goes_on(self, spent: float) -> bool:
        """A short soak on a busy machine goes on until each program has done something."""
        if self.stopped() or spent >= max(self.plan.seconds, LATEST_SECONDS):
            return False
        done = Account()
        if spent >= self.plan.seconds:
            work(self.ground, done)
        return spent < self.plan.seconds or bool(done.wrong)

    def _kill(self, role: str) -> None:
        if role in self.crew.running:
            self.crew.kill(role, family=role in (SPARK, QUERIES))
            self.kills[role] += 1
            self.latest.append(role)
            self.crew.start(role)

    def _look_after(self) -> None:
        """What ended by itself is wrong, and started again; a job on Spark ends well, or says that a part is left."""
        for role, code in self.crew.ended().items():
            if role == "job":
                self._note_job(code)
                continue
            self.account.wrong.append(f"{role} ended by itself with exit code {code}, {self._minute()}")
            time.sleep(1)
            self.crew.start(role)
        self.account.wrong += self.crew.left_behind()

    def _note_job(self, code: int | None) -> None:
        self.jobs[f"exit code {code}"] += 1
        if code not in (0, 4):
            self.account.wrong.append(f"a job on Spark ended with exit code {code}, {self._minute()}")

    def _end(self) -> None:
        """Writers finish, the tables drain, consumers read the rest, and the programs stop."""
        self._look_after()
        self.quiet = time.time() * 1000
        for role in [*self.plan.writers, *({QUERIES} & self.crew.running.keys())]:
            self._stopped(role)
        folders = [self.ground.txlogs(name) for name in ("events", "state")]
        self._await("nothing is pending", lambda: not any(folder.pending() for folder in folders))
        self._stopped(COPY)
        self._done(COPY, [*self.plan.commands()[COPY], "once"])
        if self.plan.spark:
            self._stopped(SPARK)
            self._done(SPARK, self.plan.stream("available-now"))
        if "job" in self.crew.running:
            self._await("the job has ended", lambda: self.crew.running["job"].poll() is not None)
            self._look_after()
        for role in list(self.crew.running):
            self._stopped(role)
        self._await("killed processes left nothing", lambda: not self.crew.helpers)

    def _stopped(self, role: str) -> None:
        code = self.crew.stop(role)
        if code:
            self.account.wrong.append(f"{role} had exit code {code} after SIGTERM")

    def _done(self, role: str, command: list[str]) -> None:
        self.crew.start(role, command)
        try:
            code = self.crew.wait(role, DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            code = self.crew.kill(role, family=True)
        if code:
            self.account.wrong.append(f"{role} could not read the rest: exit code {code}")

    def _await(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while not done():
            self.account.wrong += self.crew.left_behind()
            if time.monotonic() > deadline:
                self.account.wrong.append(f"{what}: not within {DRAIN_SECONDS} s")
                return
            time.sleep(0.5)

    def _look(self) -> None:
        """The table must be right at any time, not only in the end."""
        seen = Account()
        try:
            look(self.ground, seen)
        except Exception as exc:  # noqa: BLE001 - whatever a reader dies of is wrong
            seen.wrong.append(f"events cannot be read: {exc!r}")
        self.account.wrong += [f"{self._minute()}: {item}" for item in seen.wrong]
        with open(self.plan.root / "looks.log", "a", encoding="utf-8") as out:
            out.write(f"{self._minute()}: {'; '.join(seen.lines + seen.wrong)}\n")

    def _minute(self) -> str:
        return f"minute {(time.monotonic() - self.status.began) / 60:.1f}"

    def _line(self) -> None:
        kills, self.latest = self.latest, []
        try:
            self.status.line(kills)
        except Exception as exc:  # noqa: BLE001 - hours of work do not end for a line
            self.account.wrong.append(f"{self._minute()}: no status line: {exc!r}")
        (self.plan.root / "wrong.log").write_text("".join(f"{item}\n" for item in self.account.wrong), "utf-8")

    def _report(self) -> None:
        waits, status = self.status.waits, self.status
        lines = [f"soak of {self.plan.minutes:g} minutes, seed {self.plan.seed}", ""]
        lines += [shown(HEADS).rstrip(), *(shown(row).rstrip() for row in status.rows), ""]
        lines += [f"kills: {dict(self.kills)}", f"jobs on Spark: {dict(self.jobs)}", f"commits: {status.watch.commits}"]
        if waits:
            shares = [f"{percentile(waits, share):.0f}" for share in (0.5, 0.99, 1)]
            lines.append(f"visibility of {len(waits)} txlogs, p50 / p99 / max, ms: {' / '.join(shares)}")
        lines += ["", *self.account.lines, "", *(f"WRONG: {item}" for item in self.account.wrong)]
        lines.append(f"rc {int(bool(self.account.wrong))}")
        (self.plan.root / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
