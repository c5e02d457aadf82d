"""
What has one place: another module that does it would be a second reader of manifests, cache, history or follower.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, packages

WALK, FOREIGN, HEADER = (f"bookkeeper/manifests/{name}.py" for name in ("walk", "foreign", "header"))
HISTORY, PLACES = "bookkeeper/history/main_history.py", "bookkeeper/consumers/place_on_main.py"
START = "spark_jobs/start_option.py"

#: what is done: by which functions and attributes (".name": of any object), and the only modules that use one
ROLES: dict[str, tuple[set[str], set[str]]] = {
    "our decoders read an entry of a manifest": (
        {"bookkeeper.format.decoder.decode_one", "bookkeeper.format.decoder.decode_block"}
        | {f"bookkeeper.format.manifest.{name}" for name in ("skimmer_of", "with_status")},
        {WALK},
    ),
    "pyiceberg reads an entry of a manifest, or a list": (
        {".fetch_manifest_entry", "pyiceberg.manifest.ManifestEntry", "pyiceberg.manifest.ManifestFile"}
        | {"pyiceberg.manifest.read_manifest_list"},
        {FOREIGN},
    ),
    "a list is decoded": ({"bookkeeper.format.manifest_list.decode"}, {"bookkeeper/manifests/reader.py"}),
    "a block gets the digest that caches know it by": ({"bookkeeper.manifests.cache.digester"}, {WALK, HEADER}),
    "what was rejected is deleted by age": (
        {".discard_rejected"},
        {"bookkeeper/tick/turns.py", "bookkeeper/tick/sweep_rejected.py"},  # of trays, and of txlogs
    ),
    "small objects for the bookkeeper are read and held": (
        {"bookkeeper.contract.tray.bytes_of", "bookkeeper.tick.turns.Turns"},
        {
            "bookkeeper/contract/pending_rewrites.py",
            "bookkeeper/tick/take_rewrites.py",
            "bookkeeper/tick/answer_column_requests.py",
        },
    ),
    "the parents of snapshots are walked": (
        {".parent_snapshot_id"},
        {
            HISTORY,
            "reaper/expiry/verify_journal.py",  # the oldest of each line, tags and branches included
            "bookkeeper/catalogs/metadata_json.py",  # writes it
            "bookkeeper/cli/repair.py",  # says it
        },
    ),
    "a reader is told where its rows since a time begin": ({".first_since"}, {PLACES, START}),
    "a reader is told that its rows are expired or rolled back": (
        {"raise PlaceExpired", "raise RolledBack"},
        {PLACES},
    ),
    "a reader takes what follows its place": (
        {"bookkeeper.consumers.unread.work"},
        {"bookkeeper/consumers/consumer.py", "bookkeeper/consumers/tail.py"},
    ),
}


@cache
def used() -> dict[str, set[str]]:
    """
    What each module outside of `format` names, by its path.
    """
    files = (file for package in packages() for file in (ROOT / package).rglob("*.py"))
    found = {str(file.relative_to(ROOT)): set(names(ast.parse(file.read_text("utf-8")))) for file in files}
    return {path: named for path, named in found.items() if not path.startswith("bookkeeper/format/")}


def names(tree: ast.Module) -> Iterator[str]:
    """
    The dotted names of what it imports and reads of imported modules, `.attribute` of any object, and `raise Error`.
    """
    imported = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
        elif isinstance(node, ast.Import):
            imported |= {item.asname: item.name for item in node.names if item.asname}
    yield from imported.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield f".{node.attr}"
            if isinstance(node.value, ast.Name) and node.value.id in imported:
                yield f"{imported[node.value.id]}.{node.attr}"
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            yield f"raise {node.exc.func.id}"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_its_one_place(role: str) -> None:
    wanted, places = ROLES[role]
    assert {path for path, named in used().items() if named & wanted} == places


def test_what_is_known_of_blocks_by_their_digests_is_in_the_one_cache() -> None:
    readers = {path: named for path, named in used().items() if not path.startswith("bookkeeper/manifests/")}
    by_digest = {
        path
        for path, named in readers.items()
        if ".digest" in named and any(name.startswith("bookkeeper.manifests.walk.") for name in named)
    }
    assert by_digest == {
        "reaper/compactor/live_files.py",
        "reaper/files/live_paths.py",
        "reaper/files/manifest_reader.py",
    }
    assert all("bookkeeper.manifests.cache.BlockCache" in readers[path] for path in by_digest)
    caches = [
        path
        for path in used()
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and any(getattr(item, "name", "") == "put_block" for item in node.body)
    ]
    assert caches == ["bookkeeper/manifests/cache.py"]


#: what a store or a catalog is known by in tests
OF_STORES = {"__getattr__", "read_many", "read_tagged", "delete_many", "load_table", "commit_table"}


def test_tests_have_one_store_and_one_catalog_that_wrap_others() -> None:
    """What fails, delays, counts or stops is given to them; beside them are those of the simulation, in memory."""
    found = {
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and re.search(r"Store$|Catalog$", node.name)
        if not {getattr(base, "id", "") for base in node.bases} & {"WrappedStore", "WrappedCatalog"}
        if {item.name for item in node.body if isinstance(item, ast.FunctionDef)} & OF_STORES
    }
    assert found == {
        "tests/support/wrapped.py: WrappedStore",
        "tests/support/wrapped.py: WrappedCatalog",
        "tests/support/faults.py: FaultyStore",  # of requests for many, each is an operation with a number
        "tests/simulation/memory.py: MemoryStore",
        "tests/simulation/catalog.py: MemoryCatalog",
    }


def in_tests(path: Path) -> set[str]:
    """
    What a module of the tests names.
    """
    return set(names(ast.parse(path.read_text("utf-8"))))


def test_tests_have_three_lakes() -> None:
    """In one process, of real processes, and the simulation's: who else makes a table's folder tries `init` itself."""
    found = {
        str(path.relative_to(ROOT / "tests"))
        for path in (ROOT / "tests").rglob("*.py")
        if "bookkeeper.commands.init.initialise" in in_tests(path)
    }
    of_init = {
        "catalogs/test_contract.py",
        "catalogs/test_init.py",
        "catalogs/test_lost.py",
        "catalogs/test_not_installed.py",
        "chaos/scenes/making.py",
        "commands/test_drop.py",
        "commands/test_init.py",
        "commands/test_init_keys.py",
        "docs/test_disasters.py",
        "reaper/test_maintained_by_catalog.py",
        "tick/test_folder_gone.py",
        "tick/test_history.py",
        "tick/test_restored.py",
    }
    assert found - of_init == {"support/lake.py", "support/configured.py", "simulation/world.py"}
    assert of_init <= found


#: how a process begins, and how it is ended
BEGINS, ENDS = {".Popen", ".fork"}, {".kill", ".killpg", ".send_signal", ".terminate"}


def test_tests_have_one_supervisor_of_processes() -> None:
    """Beside it are what starts servers, a terminal, the pool of chaos, and tests of other supervisors."""
    found = {
        str(path.relative_to(ROOT / "tests"))
        for path in (ROOT / "tests").rglob("*.py")
        if (named := in_tests(path)) & BEGINS and named & ENDS
    }
    assert found == {
        "support/crew.py",
        "support/test_crew.py",
        "support/forked.py",  # a process of the crew that is a fork
        "support/fork_server.py",  # and what forks it, which ends as its program ended
        "support/test_forked.py",  # which compares it with a process that is none
        "servers/process.py",
        "cli/terminal.py",  # on a terminal of its own
        "chaos/pool.py",  # of fault classes, which start servers: it ends their sessions
        "support/racers.py",  # a fork that kills itself
        "demo/test_children.py",  # the demo's supervisor
        "demo/test_demo.py",
        "demo/test_readme.py",
    }
