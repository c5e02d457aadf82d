"""Every block of code in README and docs/ is read as what it says it is; what is skipped is skipped for a reason."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from bookkeeper.config.load import parse
from tests.docs import code, shell
from tests.docs.blocks import DOCS, Block, anchors, blocks, inline_commands, links
from tests.docs.commands import check, check_mention, is_ours, make_targets
from tests.packaging.project import ROOT

BLOCKS = [block for path in DOCS for block in blocks(path)]
#: first line of a block: why it cannot be checked, or where it is checked better. Each is checked to be needed.
SKIPPED = {
    "writer    published  committed  consumed  missing  double  unpublished": "what the demo prints",
    's3.putObject(request -> request.bucket(bucket).key(prefix + "/pending/" + txlog).ifNoneMatch("*"),': (
        "an excerpt that needs the AWS SDK, which no test has"
    ),
    '/** A txlog of these data files; the keys are those of the header, "bookkeeper." and all. */': (
        "generated from tests/golden/WriteTxlog.java"
    ),
    "/** The keys of a slot's txlog beside those of every txlog: where it goes on from, what its channels reach. */": (
        "generated from tests/golden/WriteTxlog.java"
    ),
    "/** A file of a step, and its relative sequence number. */": "generated from tests/golden/WriteSteps.java",
    "import polars": "polars is not installed; tests/consumers/test_consumer_examples.py runs it where it is",
    "/** A replaced file, with the sequence numbers that the table's entry of it has. */": (
        "compared with tests/golden/rewrites/WriteRewrite.java by tests/contract/test_rewrite.py"
    ),
}
#: what a reader runs that is not ours
FOREIGN = {
    "cat", "chmod", "chown", "cp", "curl", "docker", "eval", "find", "groupadd", "install", "java",
    "journalctl", "kill", "kubectl", "mkdir", "pg_dump", "pip", "python", "python3", "sed", "spark-submit",
    "sqlite3", "systemctl", "useradd", "which", ".", "/opt/bookkeeper/bin/pip",
}  # fmt: skip
PLACEHOLDER = re.compile(r"^(\.\.\.|INNER)$")


def checked(block: Block) -> None:
    """
    Raises whatever is wrong with it.
    """
    READERS[block.kind](block.text)


def shell_block(text: str) -> None:
    for words in shell.commands(text):
        if is_ours(words):
            check([word for word in words if not PLACEHOLDER.match(word)])
        elif words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= make_targets(), words
        else:
            assert words[0] in FOREIGN, words[0]
        if words[1:2] == ["-m"] and words[2].startswith(("benchmarks", "demo", "tests")):
            assert importlib.util.find_spec(words[2]) is not None, words[2]
        if words[1:2] == ["-c"] and words[0].startswith("python"):
            code.check(words[2])
        for word in words:
            if re.match(r"(config|docs|tests)/", word):
                assert (ROOT / word).exists(), word


def plain_block(text: str) -> None:
    """Commands among output, drawings and lines of other languages."""
    for line in text.split("\n"):
        if re.match(r"(bookkeeper|reaper|writer|python -m spark_jobs)\b", line):
            shell_block(line)


def console_block(text: str) -> None:
    """What a person typed, behind `$ ` where what came back is shown too."""
    typed = [line.removeprefix("$ ") for line in text.split("\n") if line.startswith("$ ")]
    shell_block("\n".join(typed) or text)


def toml_block(text: str) -> None:
    parse(text, dict.fromkeys(re.findall(r"\$\{(\w+)", text), "1") | {"HERE": "/here"})


def sql_block(text: str) -> None:
    """Run by tests/deploy/test_rights_sql.py."""
    assert text.strip().endswith(";")


def java_block(text: str) -> None:
    assert text in (ROOT / "docs" / "java" / "LinesWriter.java").read_text("utf-8")


READERS = {
    "": plain_block,
    "text": plain_block,
    "sh": shell_block,
    "console": console_block,
    "python": code.check,
    "toml": toml_block,
    "json": json.loads,
    "yaml": yaml.safe_load,
    "sql": sql_block,
    "java": java_block,
    "sparksql": str.strip,
}


def test_there_are_many_blocks_of_every_kind() -> None:
    assert len(BLOCKS) > 40
    assert {"sh", "python", "toml", "json"} <= {block.kind for block in BLOCKS}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.first not in SKIPPED], ids=str)
def test_an_example_is_right(block: Block) -> None:
    checked(block)


@pytest.mark.parametrize("first", SKIPPED)
def test_what_is_skipped_is_there_and_cannot_be_checked(first: str) -> None:
    (block,) = [block for block in BLOCKS if block.first == first]

    with pytest.raises(Exception):  # noqa: B017, PT011
        checked(block)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_a_command_in_the_prose_exists_with_these_options(path: Path) -> None:
    for words in (words for text in inline_commands(path) for words in shell.commands(text)):
        if is_ours(words) and not words[1].isupper():  # `bookkeeper COMMAND --help`
            check_mention(words)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_a_link_leads_somewhere(path: Path) -> None:
    for link in links(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_foreign_program_is_used() -> None:
    shells = [block.text for block in BLOCKS if block.kind == "sh"]

    assert {words[0] for text in shells for words in shell.commands(text)} >= FOREIGN


WRONG = [
    ("sh", "bookkeeper stauts"),
    ("sh", "bookkeeper status --tabel events"),
    ("sh", "reaper once --dry-run && bookkeeper onec"),
    ("sh", "echo $(python -m spark_jobs.prepare --java-hom)"),
    ("sh", "make tset"),
    ("sh", "cp config/lokal.toml bookkeeper.toml"),
    ("sh", "bokkeeper run &"),
    ("", "bookkeeper consumers --mnd"),
    ("console", "python -m benchmarks.nothing"),
    ("console", "$ bookkeeper consumers --mnd\nno consumer is registered"),
    ("toml", "[bookkeeper]\nevry = '1s'"),
    ("python", "from writers.writer import Riter"),
    ("python", "from writers.writer import Writer\nWriter.open('x', nam='y')"),
    ("json", "{"),
    ("java", "class Foreign {}"),
]


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_an_example_that_is_wrong_is_found(kind: str, text: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011
        checked(Block("docs/none.md", 1, kind, text))
