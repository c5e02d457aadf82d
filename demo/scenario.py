"""
The scenario of the demo: start the processes, let the writers write (and kill some), drain.
"""

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bookkeeper.config.units import format_duration
from demo import chaos, commands
from demo.children import Child, Children, failed
from demo.folder import DemoPaths
from demo.observer import Counts, Observer
from demo.options import DemoOptions
from demo.view import View

_TURN = 0.4
_TO_BEGIN, _TO_END, _TO_DRAIN, _TO_REAP = 180.0, 60.0, 90.0, 20.0
_REAP_AFTER = 5
_SERVING = ("consumer", "bookkeeper", "reaper")
#: exit code of a writer whose run is over and that should be started again
_RESTART = 5


@dataclass
class Scenario:
    """One run of the demo; `clock` gives seconds."""

    options: DemoOptions
    paths: DemoPaths
    children: Children
    view: View
    clock: Callable[[], float]
    pause: Callable[[float], None]
    runs: dict[str, int] = field(default_factory=dict)
    until: float = 0.0
    #: where the bookkeeper serves its page
    address: str = ""

    def begin(self) -> None:
        """Make the table, and start the bookkeeper and the Spark stream."""
        self.view.say("making the table; starting the bookkeeper and a Spark stream")
        commands.write_config(self.paths, commands.expire_after(self.options.chaos, 0))
        commands.close_logs(self.paths).mkdir()
        self.children.run("init", commands.init(self.paths), _TO_BEGIN)
        self.children.add("consumer", lambda: commands.consumer(self.paths))
        self.children.add("bookkeeper", self._bookkeeper)

    def _bookkeeper(self) -> list[str]:
        before, self.address = self.address, commands.free_address(self.address or commands.LISTEN)
        if self.address not in ("", before):
            self.view.say(f"how it is going, in a browser: http://{self.address}/")
        return commands.bookkeeper(self.paths, self.address)

    def await_consumer(self) -> None:
        """Wait until the stream runs, then start the reaper: rows written before would only wait."""
        began = self.clock()
        while not commands.ready(self.paths).exists():
            self.view.show("Spark is starting")
            self._check(["consumer", "bookkeeper"])
            if self.clock() > began + _TO_BEGIN:
                raise failed(self.children.members["consumer"])
            self.pause(_TURN)
        after = commands.expire_after(self.options.chaos, self.clock() - began)
        commands.write_config(self.paths, after)
        self.children.add("reaper", lambda: commands.reaper(self.paths))
        self.view.say(
            f"Spark follows; the reaper expires snapshots older than {format_duration(timedelta(seconds=after))}"
        )

    def write(self, observer: Observer, folder: Path) -> None:
        """Let the writers write, and kill processes by the plan of chaos."""
        began = self.clock()
        self.until = began + self.options.seconds
        for name in self.options.names:
            self.children.add(name, lambda name=name: self._writer(folder, name))
        self.view.say(f"{self.options.writers} writers write for {self.options.seconds} s")
        plan = chaos.kills(self.options.seed, self.options.seconds, self.options.names) if self.options.chaos else []

        def ended(counts: Counts) -> bool:
            while plan and plan[0].at <= self.clock() - began:
                self._kill(plan.pop(0).victim)
            done = [self._is_done(writer) for writer in self._writers()]
            return all(done)

        if not self._until(observer, "writing", self.options.seconds + _TO_END, ended):
            raise failed(next(child for child in self._writers() if child.running))

    def _writers(self) -> list[Child]:
        return [self.children.members[name] for name in self.options.names]

    def _writer(self, folder: Path, name: str) -> list[str]:
        self.runs[name] = self.runs.get(name, 0) + 1
        left = max(self.until - self.clock(), 1)
        return commands.writer(self.paths, f"file://{folder}", name, self.runs[name], left)

    def _kill(self, name: str) -> None:
        if self.children.kill(name):
            self.children.start(name)
            self.view.say(f"kill -9 {name}, and started again")

    def _is_done(self, writer: Child) -> bool:
        if writer.exit_code == _RESTART:
            self.children.start(writer.name)
        elif writer.exit_code not in (None, 0):
            raise failed(writer)
        return not writer.running

    def drain(self, observer: Observer) -> None:
        """Wait until everything published is consumed; after a time limit the account reports what is missing."""
        self.view.say("the writers are done; draining")
        self._until(observer, "draining", _TO_DRAIN, lambda counts: counts.settled)
        self._stop("consumer")
        if self.options.chaos:
            self._reap(observer)
        self._stop("bookkeeper", "reaper")
        observer.look()

    def _reap(self, observer: Observer) -> None:
        """Let the reaper expire what it held for a killed consumer: old snapshots are no longer needed."""
        commands.write_config(self.paths, _REAP_AFTER)
        self._kill("reaper")
        few = commands.RETAIN_LAST + _REAP_AFTER
        self._until(observer, "reaping", _TO_REAP, lambda counts: counts.snapshots <= few)

    def _stop(self, *names: str) -> None:
        self.children.stop(names)
        for name in names:
            # One that was started just before ends by the signal itself.
            if self.children.members[name].exit_code not in (0, -signal.SIGTERM):
                raise failed(self.children.members[name])

    def _until(self, observer: Observer, phase: str, seconds: float, reached: Callable[[Counts], bool]) -> bool:
        deadline = self.clock() + seconds
        while self.clock() < deadline:
            counts = observer.look()
            self.view.show(phase, counts)
            self._check(name for name in _SERVING if not self.children.members[name].ended)
            if reached(counts):
                return True
            self.pause(_TURN)
        return False

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            child = self.children.members[name]
            if child.running:
                continue
            # Another program took the port after the look.
            if name != "bookkeeper" or f"cannot listen on {self.address}:" not in child.tail():
                raise failed(child)
            self.children.start(name)

    def killed(self) -> str:
        """How often each process was killed."""
        counts = {name: child.kills for name, child in self.children.members.items() if child.kills}
        return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
