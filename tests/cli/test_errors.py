"""Whatever is wrong: one line that says what and where, a hint, an exit code, and never a traceback."""

import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bookkeeper.history.registry import Registry, reader
from tests.cli.commands import HTTP, KAFKA, WATCH, commands, examples, programs, words
from tests.cli.sandbox import Sandbox
from tests.support.lake import Lake, Writes
from tests.support.logs import logging_put_back

#: the first example of every command that reads the configuration
EXAMPLES = [
    (path, examples(command)[0])
    for path, command in commands()
    if not path[0].startswith("python -m") and (not hasattr(command, "commands") or path[1:] == ("consumers",))
    if any(option.name == "config" for option in command.params)
    if "--folder" not in examples(command)[0] and path not in KAFKA + HTTP + WATCH
]
COMMANDS = ("reaper.cli", "spark_jobs.read_stream")
#: they go on, and say in their log what keeps them
PATIENT = (("bookkeeper", "run"), ("reaper", "run"), ("bookkeeper", "top"))
#: they make what is missing: run behind all others
MAKERS = (("bookkeeper", "init"), ("bookkeeper", "load"))


def configured(*changes: str) -> Callable[[Sandbox], None]:
    """The configuration with texts replaced, two by two."""

    def change(sandbox: Sandbox) -> None:
        root, text = sandbox.lake.root, sandbox.config
        here = [change.replace("{root}", str(root)) for change in changes]
        for old, new in zip(here[::2], here[1::2], strict=True):
            assert old in text
            text = text.replace(old, new)
        (root / "bookkeeper.toml").write_text(text)

    return change


def without_config(sandbox: Sandbox) -> None:
    (sandbox.lake.root / "bookkeeper.toml").unlink()


def card_spoilt(sandbox: Sandbox) -> None:
    # What a command removes is there, though none can be added.
    Registry(sandbox.lake.folder.store).add(reader("nightly", 1, sandbox.lake.clock(), timedelta(hours=1)))
    sandbox.lake.put("card.json", b"{")


def metadata_lost(sandbox: Sandbox) -> None:
    shutil.rmtree(sandbox.lake.root / "demo/events/metadata")


SQLITE = "sqlite:///{root}/catalog.db"
POSTGRES = "postgresql+psycopg2://etl:correct-horse@127.0.0.1:9/lake"
#: what is wrong -> how it comes to be, the exit codes that fit, and what the error has to name
WRONG: dict[str, tuple[Callable[[Sandbox], None], tuple[int, ...], str]] = {
    "no configuration": (without_config, (1,), "bookkeeper.toml"),
    "a misspelt key": (configured("listen", "lisen"), (1,), "Did you mean listen?"),
    "no table": (configured("[tables.events]\n\"identifier\" = \"demo.events\"", ""), (1,), "bookkeeper.toml"),
    "no such kind of catalog": (configured('"sql"', '"nosql"'), (1,), "'nosql'"),
    "a catalog's disk that is not mounted": (configured(SQLITE, "sqlite:///{root}/no/c.db"), (4,), "no/c.db"),
    "a catalog that is down": (configured(SQLITE, POSTGRES), (4,), "refused"),
    "a table that is not there": (configured("demo.events", "demo.nothing"), (1, 3), "demo.nothing"),
    "a folder that is not there": (configured("demo.events\"", "demo.events\"\nfolder = \"{root}/no\""), (4,), "/no"),
    "an unknown storage": (configured("demo.events\"", "demo.events\"\nfolder = \"foo://b/x\""), (1, 4), "foo://b/x"),
    "a spoilt card": (card_spoilt, (1, 3), "_bookkeeper"),
    "lost metadata": (metadata_lost, (1, 4), "demo.events"),
}  # fmt: skip


@pytest.mark.usefixtures("soon_stopped")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("wrong", WRONG)
def test_no_command_answers_with_a_traceback(wrong: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, codes, named = WRONG[wrong]
    sandbox.restore()
    monkeypatch.chdir(sandbox.lake.root)
    monkeypatch.delenv("BOOKKEEPER_CONFIG", raising=False)
    spoil(sandbox)
    for path, example in sorted(EXAMPLES, key=lambda item: item[0] in MAKERS):
        done = call(*words(sandbox.here(example)))
        about = f"{' '.join(path)}: {done.output}"
        assert done.exception is None or isinstance(done.exception, SystemExit), about
        assert "Traceback" not in done.output and "correct-horse" not in done.output, about
        if (path in PATIENT and done.exit_code == 0) or path in MAKERS:
            continue
        if done.exit_code == 0:  # it needs nothing of what is wrong
            continue
        assert done.exit_code in codes, about
        said = done.stdout + done.stderr
        assert "hint" in said, about
        assert named in said, about


def call(name: str, *arguments: str) -> Result:
    with logging_put_back():
        return CliRunner().invoke(programs()[name], arguments, input="y\n")


@pytest.mark.parametrize(
    "module, name, arguments, pip",
    [
        ("apscheduler", "reaper", ["run"], "iceberg-bookkeeper[reaper]"),
        ("s3fs", "writer", ["generate", "--folder", "s3://b/x", "--files", "1"], "iceberg-bookkeeper[s3]"),
        ("adlfs", "writer", ["generate", "--folder", "abfss://b@a/x", "--files", "1"], "iceberg-bookkeeper[azure]"),
        ("pyspark", "python -m spark_jobs.read_stream", ["--checkpoint", "cp"], "iceberg-bookkeeper[spark]"),
    ],
)
def test_a_missing_extra_prints_the_pip_line(
    module: str, name: str, arguments: list[str], pip: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOKKEEPER_CONFIG", str(tmp_path / "bookkeeper.toml"))
    absent(monkeypatch, module)
    done = call(name, *arguments)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, f"hint: Run: pip install '{pip}'"), done.output


def absent(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """As if it were not installed, though others have imported it."""

    class Absent:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] == module:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Absent, *sys.meta_path])
    ours = (
        "reaper.",
        "bookkeeper.observe.http",
        "bookkeeper.observe.metrics",
        "bookkeeper.stores.s3",
        "bookkeeper.stores.azure",
        "bookkeeper.stores.gcs",
    )
    modules = dict(sys.modules)
    for name in modules:
        theirs = name.partition(".")[0] == module
        again = name.startswith((*ours, "bookkeeper.stores.open", "spark_jobs.")) and name not in COMMANDS
        if theirs or again:
            monkeypatch.delitem(sys.modules, name)
            package, _, own = name.rpartition(".")
            if hasattr(modules.get(package), own):  # what is imported anew is put there: to be undone as well
                monkeypatch.setattr(modules[package], own, getattr(modules[package], own))


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["statu"], 2, "Did you mean 'status'?"),
        (["status", "--tabel", "x"], 2, "--table"),
        (["status", "--table", "evnts"], 1, "Did you mean events?"),
        (["once", "--table", "evnts"], 1, "Did you mean events?"),
        (["init", "--schema", "no.json"], 1, "no.json cannot be read"),
        (["init", "--like", "no.parquet"], 1, "no.parquet"),
        (["show", "nonsense"], 1, "`bookkeeper pending`"),
        (["replay", "w1.0199c0de-0000-7000-8000-000000000001.0000000042.txlog.avro"], 1, "hint: "),
        (["discard", "w1.0199c0de-0000-7000-8000-000000000001", "--up-to", "0"], 2, "--up-to"),
        (["forget", "unknown"], 1, "`bookkeeper writers`"),
        (["consumers", "remove", "unknown"], 1, "`bookkeeper consumers`"),
        (["consumers", "add", "Bad Name", "--checkpoint", "cp"], 1, "Bad Name"),
        (["lag", "--watch", "soon"], 2, "a duration such as"),
        (["status", "--config", "x" * 5000], 1, "hint: "),
        (["status", "--config", "/"], 1, "no configuration at /"),
        (["tail", "--from", "yesterday"], 1, "is expected"),
        (["run", "--listen", "nonsense"], 1, "HOST:PORT is allowed"),
    ],
)
def test_bad_words_are_answered_with_what_is_allowed(arguments: list[str], code: int, said: str, run: Any) -> None:
    done = run(*arguments)
    assert (done.exit_code, said in done.output) == (code, True), done.output
    assert isinstance(done.exception, SystemExit)
    assert "hint: " in done.stderr or code == 2, done.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["generate", "--folder", "{root}/nowhere", "--files", "1"], "nowhere"),
        (["generate", "--folder", "{root}/bookkeeper.toml", "--files", "1"], "bookkeeper.toml"),
        (["generate", "--folder", "{root}", "--files", "1"], "card.json"),
        (["generate", "--folder", "foo://b/x", "--files", "1"], "'foo' is not supported"),
        (["generate", "--folder", "{folder}", "--name", "Not A Name", "--files", "1"], "Not A Name"),
        (["generate", "--folder", "{folder}", "--files", "1", "--records", "1", "--close-log", "{root}/no/x"], "no/x"),
        (["lines", "--folder", "{folder}", "--name", "l", "--bad", "{root}/no/x", "{root}/bookkeeper.toml"], "no/x"),
    ],
)
def test_a_writer_says_what_is_wrong_with_its_folder_or_files(
    arguments: list[str], said: str, lake: Lake, writer: Writes, run: Any
) -> None:
    places = {"root": str(lake.root), "folder": lake.made.folder}
    done = call("writer", *(argument.format(**places) for argument in arguments))
    assert done.exit_code not in (0, 2), done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert said in done.stderr and "hint: " in done.stderr, done.stderr


def test_a_bug_is_no_error_of_the_user(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from bookkeeper.cli import pending

    monkeypatch.setattr(pending, "opened", lambda *_: 1 / 0)
    assert isinstance(run("pending").exception, ZeroDivisionError)
