"""
The course of the demo: begin, let them write (and kill some), drain.
"""

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bookkeeper.config.units import format_duration
from demo import chaos, commands
from demo.children import Child, Children, failed
from demo.place import Place
from demo.view import View
from demo.wishes import Wishes
from demo.witness import Facts, Witness

_TURN = 0.4
_TO_BEGIN, _TO_END, _TO_DRAIN, _TO_REAP = 180.0, 60.0, 90.0, 20.0
_REAP_AFTER = 5
_SERVING = ("consumer", "bookkeeper", "reaper")
#: what a writer says when its run is over and it should be started again
_RESTART = 5


@dataclass
class Course:
    """One run of the demo; `clock` gives seconds."""

    wishes: Wishes
    place: Place
    children: Children
    view: View
    clock: Callable[[], float]
    pause: Callable[[float], None]
    runs: dict[str, int] = field(default_factory=dict)
    until: float = 0.0

    def begin(self) -> None:
        """Make the table, and start the bookkeeper and the Spark stream."""
        self.view.say("making the table; starting the bookkeeper and a Spark stream")
        commands.write_config(self.place, commands.expire_after(self.wishes.chaos, 0))
        commands.close_logs(self.place).mkdir()
        self.children.run("init", commands.init(self.place), _TO_BEGIN)
        self.children.add("consumer", lambda: commands.consumer(self.place))
        listen = commands.free_address()
        self.children.add("bookkeeper", lambda: commands.bookkeeper(self.place, listen))
        if listen:
            self.view.say(f"how it is going, in a browser: http://{listen}/")

    def await_consumer(self) -> None:
        """Until the stream runs, for what is written before would only wait; then start the reaper."""
        began = self.clock()
        while not commands.ready(self.place).exists():
            self.view.show("Spark is starting")
            self._check(["consumer", "bookkeeper"])
            if self.clock() > began + _TO_BEGIN:
                raise failed(self.children.members["consumer"])
            self.pause(_TURN)
        after = commands.expire_after(self.wishes.chaos, self.clock() - began)
        commands.write_config(self.place, after)
        self.children.add("reaper", lambda: commands.reaper(self.place))
        self.view.say(
            f"Spark follows; the reaper expires snapshots older than {format_duration(timedelta(seconds=after))}"
        )

    def write(self, witness: Witness, folder: Path) -> None:
        """Let the writers write, and kill whom chaos wants killed."""
        began = self.clock()
        self.until = began + self.wishes.seconds
        for name in self.wishes.names:
            self.children.add(name, lambda name=name: self._writer(folder, name))
        self.view.say(f"{self.wishes.writers} writers write for {self.wishes.seconds} s")
        plan = chaos.kills(self.wishes.seed, self.wishes.seconds, self.wishes.names) if self.wishes.chaos else []

        def ended(facts: Facts) -> bool:
            while plan and plan[0].at <= self.clock() - began:
                self._kill(plan.pop(0).victim)
            done = [self._is_done(writer) for writer in self._writers()]
            return all(done)

        if not self._until(witness, "writing", self.wishes.seconds + _TO_END, ended):
            raise failed(next(child for child in self._writers() if child.running))

    def _writers(self) -> list[Child]:
        return [self.children.members[name] for name in self.wishes.names]

    def _writer(self, folder: Path, name: str) -> list[str]:
        self.runs[name] = self.runs.get(name, 0) + 1
        left = max(self.until - self.clock(), 1)
        return commands.writer(self.place, f"file://{folder}", name, self.runs[name], left)

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

    def drain(self, witness: Witness) -> None:
        """Until everything published is consumed; what never comes is the account's to tell."""
        self.view.say("the writers are done; draining")
        self._until(witness, "draining", _TO_DRAIN, lambda facts: facts.settled)
        self._stop("consumer")
        if self.wishes.chaos:
            self._reap(witness)
        self._stop("bookkeeper", "reaper")
        witness.look()

    def _reap(self, witness: Witness) -> None:
        """Nobody needs old snapshots any more: what the reaper had to hold for a killed consumer goes."""
        commands.write_config(self.place, _REAP_AFTER)
        self._kill("reaper")
        few = commands.RETAIN_LAST + _REAP_AFTER
        self._until(witness, "reaping", _TO_REAP, lambda facts: facts.snapshots <= few)

    def _stop(self, *names: str) -> None:
        self.children.stop(names)
        for name in names:
            # One that was started just before ends by the signal itself.
            if self.children.members[name].exit_code not in (0, -signal.SIGTERM):
                raise failed(self.children.members[name])

    def _until(self, witness: Witness, phase: str, seconds: float, reached: Callable[[Facts], bool]) -> bool:
        deadline = self.clock() + seconds
        while self.clock() < deadline:
            facts = witness.look()
            self.view.show(phase, facts)
            self._check(name for name in _SERVING if not self.children.members[name].ended)
            if reached(facts):
                return True
            self.pause(_TURN)
        return False

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            if not self.children.members[name].running:
                raise failed(self.children.members[name])

    def killed(self) -> str:
        """Who was killed how often."""
        counts = {name: child.kills for name, child in self.children.members.items() if child.kills}
        return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
