"""
Tests that must fail without a rule, run in a process of their own; that process is this plugin of pytest.

    python -m pytest -p tests.rules.tested --without FILE tests/...

FILE names rules and tests (JSON). Each test is run with each of its mutants in place, until a case of it fails. What
came of it is written to FILE.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pytest
from _pytest.runner import runtestprotocol

from tests.rules.rule import Found, Outcome, Rule, cpu_seconds
from tests.support.crew import Crew

ROOT = Path(__file__).parents[2]
#: of one test, far more than it takes: a mutant may make it wait for ever
_MOST_SECONDS = 300

#: exit codes of a whole run: all passed, or there was no test at all
_RAN = (0, pytest.ExitCode.NO_TESTS_COLLECTED)


class _Test(Protocol):
    node: str
    says: str


@contextmanager
def looking(wanted: Sequence[tuple[Rule, Any]]) -> Iterator[Callable[[], list[Outcome]]]:
    """
    Begins to run the tests, all of them in one process beside this one: what is yielded waits for what each says.
    """
    with TemporaryDirectory() as root:
        file = Path(root, "wanted.json")
        file.write_text(json.dumps([[rule.name, test.node] for rule, test in wanted]))
        options = ("-p", "tests.rules.tested", "--without", str(file), "-p", "no:cacheprovider", "-q", "--no-header")
        # Each test has a time of its own. Tracebacks are not read, and a thread that a mutant left would disturb their
        # parser: "AST constructor recursion depth mismatch".
        options = (*options, "-o", "faulthandler_timeout=0", "--tb=native")
        files = dict.fromkeys(test.node.partition("::")[0] for _, test in wanted)
        with Crew({"tests": [sys.executable, "-m", "pytest", *options, *files]}, Path(root)) as crew:
            process = crew.start("tests", cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": ""})

            def outcomes() -> list[Outcome]:
                process.wait()
                found = json.loads(file.read_text())
                if not isinstance(found, dict) or process.returncode not in _RAN:
                    why = " ".join(f"the tests could not be run: {crew.log('tests').read_text()[-700:]}".split())
                    return [Outcome(None, unfit=why) for _ in wanted]
                return [_outcome(found[f"{rule.name} {test.node}"], test) for rule, test in wanted]

            yield outcomes


def _outcome(said: dict[str, Any], test: _Test) -> Outcome:
    if "slow" in said and "fails" not in said:
        return Outcome(None, said["seconds"], skipped=said["slow"])
    if "fails" not in said and "passes" not in said:
        if "skipped" in said and "unfit" not in said:
            return Outcome(None, said["seconds"], skipped=said["skipped"])
        return Outcome(None, unfit=said.get("unfit", f"there is no test {test.node}"))
    fails = test.says in said.get("fails", "") and "fails" in said
    return Outcome(Found(said["fails"]) if fails else None, said["seconds"], said.get("unfit", ""))


# in the process of its own


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", help="rules and tests, as JSON; what came of them is written there")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--without"):
        config.pluginmanager.register(_Without(Path(config.getoption("--without"))))


class _Without:
    """Runs tests without rules, instead of running them."""

    def __init__(self, file: Path) -> None:
        from tests.rules.registry import RULES

        self.file, self.rules = file, RULES
        self.wanted: list[tuple[str, str]] = [tuple(item) for item in json.loads(file.read_text())]
        self.said = {f"{name} {node}": dict[str, Any]() for name, node in self.wanted}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if any(_is_case(item, node) for _, node in self.wanted)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        for name, node in self.wanted:
            said = self.said[f"{name} {node}"]
            if _is_case(item, node) and not {"fails", "unfit", "slow"} & said.keys():
                began = cpu_seconds()
                said |= dict(self._tried(self.rules[name], item))
                said["seconds"] = said.get("seconds", 0) + cpu_seconds() - began
        return True

    def _tried(self, rule: Rule, item: pytest.Item) -> Iterator[tuple[str, str]]:
        try:
            with rule.broken(), _in_time():
                # Nothing that was made without a rule is left for the next test.
                reports = runtestprotocol(item, log=False, nextitem=None)
        except Exception as error:  # noqa: BLE001 - of a mutant that does not fit
            yield "unfit", repr(error)
            return
        for report in reports:
            if report.passed and report.when == "call":
                yield "passes", item.nodeid
            elif report.failed and "tests.rules.tested.Hang" in str(report.longrepr):
                yield "slow", f"{item.nodeid} takes longer than {_MOST_SECONDS} s"
            elif report.failed and report.when == "call" and _is_ours(report):
                yield "unfit", f"{item.nodeid}: {_summary(report)}"
            elif report.failed and report.when == "call":
                yield "fails", _summary(report)
            elif report.failed and report.when == "setup":
                yield "unfit", f"{item.nodeid} fails before it begins: {_summary(report)}"
            elif report.skipped:
                yield "skipped", f"{item.nodeid} is skipped: {report.longrepr}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self.file.write_text(json.dumps(self.said))


class Hang(BaseException):
    """It takes too long: no code under test may catch it."""


@contextmanager
def _in_time() -> Iterator[None]:
    def hang(number: int, frame: object) -> None:
        raise Hang(f"it took longer than {_MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(_MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _is_case(item: pytest.Item, node: str) -> bool:
    return item.nodeid == node or item.nodeid.startswith(f"{node}[")


def _is_ours(report: pytest.TestReport) -> bool:
    """Whether a mutant itself fails: that proves nothing."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash is not None and Path(crash.path).parent == Path(__file__).parent


def _summary(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return " ".join(text.split())[:300]
