"""docs/deploy.md#upgrade: its versions are those of the code, and what it says of a newer one is what happens."""

import json
import re
from pathlib import Path

import pytest

from bookkeeper import errors
from bookkeeper.contract import card, marks, marks_json, txlog
from bookkeeper.history import registry
from reaper.expiry import journal
from tests.packaging.project import ROOT

TEXT = (ROOT / "docs" / "deploy.md").read_text("utf-8").partition("\n## Upgrade\n")[2]
ROWS = dict(re.findall(r"^\| ([^|]+?) \| (\d+) \|", TEXT, re.MULTILINE))


def test_the_versions_are_those_of_the_code() -> None:
    known = [txlog.VERSION, card.VERSION, marks_json.VERSION, registry.VERSION, journal.VERSION, 2]

    assert [int(version) for version in ROWS.values()] == known
    assert list(ROWS)[:2] == ["txlog", "`card.json`"]


def test_a_newer_card_is_refused_with_what_to_do() -> None:
    newer = json.dumps({"version": card.VERSION + 1}).encode()

    with pytest.raises(errors.BookkeeperError) as refused:
        card.loads(newer)

    assert "Upgrade" in refused.value.hint


def test_newer_marks_halt_and_are_never_taken_for_none() -> None:
    newer = json.dumps({**json.loads(marks_json.dumps(marks.Marks("folder"))), "version": marks_json.VERSION + 1})

    with pytest.raises(errors.Halt):
        marks_json.loads(newer)


def test_the_golden_files_are_those_of_every_version_so_far() -> None:
    found = {path.name for path in (ROOT / "tests" / "golden").glob("*.txlog.avro")}

    assert len(found) >= 7 and all(Path(name).suffix == ".avro" for name in found)
