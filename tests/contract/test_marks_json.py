"""Marks as text: the table property and marks.json."""

import json

import pytest

from bookkeeper.contract.marks import Mark, Marks, WriterMarks
from bookkeeper.contract.marks_json import dumps, from_json, loads, to_json
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import MarksLost

T0 = 1_700_000_000_000


def test_marks_are_written_as_documented(first: TxlogName) -> None:
    marks = Marks("0199", 7, 5, times=((1, 1000), (9, 2000)))
    marks = marks.advanced([first, first.at(3)], {"w1": b"\x00\xff"}, T0)
    assert to_json(marks) == {
        "version": 1,
        "folder": "0199",
        "snapshot": 7,
        "pruned-before-ms": 5,
        "writers": {
            "w1": {
                "incarnations": {first.incarnation: {"last": 3, "holes": [2], "seen-ms": T0}},
                "position": "AP8=",
            }
        },
        "times": [[1, 1000], [9, 2000]],
    }


def test_marks_with_offsets_are_version_2_and_without_them_version_1_byte_for_byte(first: TxlogName) -> None:
    before = Marks("0199", 7, 5).advanced([first], {"w1": b"1"}, T0)
    marks = before.advanced([first.at(2)], {"w1": b"2"}, T0, {"w1": {"b/1": "9", "a/0": "7"}})
    written = json.loads(dumps(marks))
    assert written["version"] == 2
    assert written["writers"]["w1"] == {
        "incarnations": {first.incarnation: {"last": 2, "seen-ms": T0}},
        "position": "Mg==",
        "offsets": {"a/0": "7", "b/1": "9"},
    }
    assert loads(dumps(marks)) == marks
    without = marks.without_channel("w1", "a/0").without_channel("w1", "b/1")
    assert dumps(without) == dumps(before.advanced([first.at(2)], {"w1": b"2"}, T0))


def test_equal_marks_are_written_as_equal_text(first: TxlogName) -> None:
    other = TxlogName("a", first.incarnation, 1)
    one, two = (Marks("f").advanced(order, {}, T0) for order in ([first, other], [other, first]))
    assert dumps(one) == dumps(two)


GOOD = to_json(Marks("f", 1, 0, {"w": WriterMarks(b"1", {"i": Mark(3, (2,), 9)})}, ((1, 2),)))
BAD = [
    "",
    "null",
    "[]",
    "{}",
    "[" * 100_000,
    "1e999",
    *(json.dumps({key: value for key, value in GOOD.items() if key != gone}) for gone in list(GOOD)[:5]),
    *(
        json.dumps(GOOD | change)
        for change in (
            {"version": 3},
            {"version": 0},
            {"version": 1.0},
            {"version": "1"},
            {"folder": 1},
            {"snapshot": "1"},
            {"snapshot": True},
            {"pruned-before-ms": 0.5},
            {"writers": []},
            {"writers": {"w": {}}},
            {"writers": {"w": {"incarnations": {"i": {"last": "3", "seen-ms": 9}}}}},
            {"writers": {"w": {"incarnations": {"i": {"last": 3}}}}},
            {"writers": {"w": {"incarnations": {"i": {"last": 3, "seen-ms": 9, "holes": [4]}}}}},
            {"writers": {"w": {"incarnations": {"i": {"last": 3, "seen-ms": 9, "holes": ["2"]}}}}},
            {"writers": {"w": {"incarnations": {}, "position": "%"}}},
            {"writers": {"w": {"incarnations": {}, "position": 5}}},
            {"writers": {"w": {"incarnations": {}, "offsets": {"a b": "1"}}}},
            {"writers": {"w": {"incarnations": {}, "offsets": {"a": 1}}}},
            {"writers": {"w": {"incarnations": {}, "offsets": {"a": ""}}}},
            {"writers": {"w": {"incarnations": {}, "offsets": ["a"]}}},
            {"times": [[1]]},
            {"times": [["1", 2]]},
        )
    ),
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_marks_that_are_not_ours_are_lost_and_not_guessed_at(text: str) -> None:
    with pytest.raises(MarksLost):
        loads(text)


def test_the_marks_that_the_bad_ones_are_made_from_are_good() -> None:
    assert to_json(from_json(GOOD)) == GOOD
