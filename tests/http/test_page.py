"""docs/writers.md, "Rows over HTTP": its commands as they stand, and the examples of the command's help."""

import json
import subprocess
from pathlib import Path

import click

from bookkeeper.contract.offsets import MOST_CHANNELS
from tests.cli.commands import HTTP, commands, examples, words
from tests.docs.blocks import blocks
from tests.http.served import Door
from tests.packaging.project import ROOT
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue

PAGE = ROOT / "docs" / "writers.md"
TEXT = PAGE.read_text("utf-8").partition("## Rows over HTTP")[2].partition("\n## ")[0]
SERVE, CURL = (
    next(block.text for block in blocks(PAGE) if block.kind == "sh" and text in block.text)
    for text in ("writer serve", "curl")
)
CLIENT = next(block.text for block in blocks(PAGE) if block.kind == "python" and "writers.http" in block.text)
COMMAND = dict(commands())[HTTP[0]]


def options_of(line: str) -> click.Context:
    return COMMAND.make_context("serve", words(line)[2:])


def test_its_commands_take_rows(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("events 0123456789abcdef")
    given = options_of(SERVE.strip().replace("tokens.txt", str(tmp_path / "tokens.txt"))).params
    lake = Queue(tmp_path)
    served = Door(lake, slots=given["slots"], tokens=given["tokens"])
    try:
        with again_and_again(lake.tick, 0.05):
            for line, committed in zip(CURL.splitlines(), (1, 1), strict=True):
                here = line.replace(given["http"], f"127.0.0.1:{served.port}")
                found = subprocess.run(here, shell=True, check=True, capture_output=True, timeout=40).stdout
                assert json.loads(found)["committed"] == committed
            at, directory = f"127.0.0.1:{served.port}", str(tmp_path / "till-8-spool")
            exec(CLIENT.replace("127.0.0.1:8080", at).replace("till-8-spool", directory), {})
    finally:
        served.end()
    assert lake.keys() == ["a", "b"]


def test_the_examples_are_commands(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("* 0123456789abcdef")
    for line in examples(COMMAND):
        given = options_of(line.replace("tokens.txt", str(tmp_path / "tokens.txt"))).params
        assert (given["tokens"] is None) == given["no_tokens"]


def test_its_numbers_are_those_of_the_code() -> None:
    given = options_of("writer serve --name door").params
    assert f"spread over {given['slots']} *slots*" in TEXT
    assert f"room for {MOST_CHANNELS:,} producers" in TEXT
    assert "within 5 seconds" in TEXT
