"""
docs/maintain/threads.md names each place that starts a thread or a process, each lock and queue: a new one needs
a line there.
"""

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.packaging.project import ROOT, packages

PAGE = ROOT / "docs" / "maintain" / "threads.md"
#: places that make threads; what is handed to `start`, `begin`, `repeating` runs in those of one of them
MOST_PLACES = 10
MAKERS = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "Process", "Threads", "to_thread"}

#: what a section of the page lists, by the modules that it is imported from
SECTIONS = {
    "Threads": {
        "threading": {"Thread", "Timer"},
        "concurrent.futures": {"ThreadPoolExecutor", "ProcessPoolExecutor"},
        "apscheduler.executors.pool": {"ThreadPoolExecutor", "ProcessPoolExecutor"},
        "multiprocessing": {"Process", "Pool"},
        "asyncio": {"to_thread"},
        "bookkeeper.threads": {"Threads", "start", "begin", "repeating"},
    },
    "Processes": {
        "subprocess": {"Popen", "run", "call", "check_call", "check_output"},
        "os": {"fork", "forkpty", "posix_spawn"},
    },
    "Locks": {"threading": {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}},
    "Queues": {"queue": {"Queue", "SimpleQueue", "LifoQueue", "PriorityQueue"}},
}


def made(tree: ast.Module, wanted: dict[str, set[str]]) -> Iterator[str]:
    """
    The names of `wanted` that are called or handed on here; an annotation makes nothing.
    """
    known = {f"{module}.{name}" for module, found in wanted.items() for name in found}
    imported = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
        elif isinstance(node, ast.Import):
            imported |= {item.asname or item.name: item.name for item in node.names}
    for node in values(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if f"{imported.get(head, head)}{f'.{rest}' if rest else ''}" in known:
                yield rest.rpartition(".")[2] or imported[head].rpartition(".")[2]


def values(node: ast.AST) -> Iterator[ast.AST]:
    """
    The nodes that are no part of a type.
    """
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "slice"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from values(child)


def in_the_code(section: str) -> Counter[tuple[str, str]]:
    files = (file for package in packages() for file in (ROOT / package).rglob("*.py"))
    found = Counter[tuple[str, str]]()
    for file in files:
        names = made(ast.parse(file.read_text("utf-8")), SECTIONS[section])
        found.update((str(file.relative_to(ROOT)), name) for name in names)
    return found


def on_the_page(section: str) -> Counter[tuple[str, str]]:
    """
    The second and third column of the section's table, without backquotes.
    """
    text = PAGE.read_text("utf-8").split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    return Counter((row[1], row[2]) for row in rows[2:])


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_and_the_code_name_the_same_places(section: str) -> None:
    code, page = in_the_code(section), on_the_page(section)
    assert code - page == Counter(), f"no line in {PAGE.name}"
    assert page - code == Counter(), "a line without a place in the code"


def test_few_places_make_threads() -> None:
    places = [place for place in in_the_code("Threads") if place[1] in MAKERS]
    assert len(places) <= MOST_PLACES, places


CODE = """
import threading, subprocess as sub
from concurrent.futures import ThreadPoolExecutor as Pool
from queue import SimpleQueue
from bookkeeper.threads import start

class It:
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting = SimpleQueue[int]()
    child: sub.Popen[bytes] | None = None

    def begin(self):
        from threading import Thread
        Thread(target=print).start()
        threading.Timer(1, print)
        self.pool, self.spawn = Pool(1), start
        self.threads: set[Thread] = set[Thread]()
        sub.Popen(["true"])
"""


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("Threads", {"Thread", "Timer", "ThreadPoolExecutor", "start"}),
        ("Processes", {"Popen"}),
        ("Locks", {"Lock"}),
        ("Queues", {"SimpleQueue"}),
    ],
)
def test_however_it_is_imported_it_is_found(section: str, names: set[str]) -> None:
    assert Counter(made(ast.parse(CODE), SECTIONS[section])) == Counter(names)
