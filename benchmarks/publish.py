"""
Puts results into docs/figures/performance.md, between its markers; draws the curve beside it.

    python -m benchmarks.publish [RESULTS] [--doc docs/figures/performance.md]
"""

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.harness import RESULTS
from benchmarks.support.plot import curve

DOC = Path(__file__).parents[1] / "docs" / "figures" / "performance.md"
BEGIN, END = "<!-- {name}: made by `python -m benchmarks.publish` -->\n", "<!-- end -->\n"
PLOT = "performance-curve.svg"
Line = Mapping[str, Any]


def latest(lines: Iterable[Line]) -> list[Line]:
    """
    Of each benchmark only what its last run said; a run begins by saying which machine it runs on.
    """
    runs = list[list[Line]]()
    for line in lines:
        if "machine" in line or not runs:
            runs.append([])
        runs[-1].append(line)
    last = {_of(line): number for number, run in enumerate(runs) for line in run}
    return [line for number, run in enumerate(runs) for line in run if last[_of(line)] == number]


def _of(line: Line) -> str:
    return str(line.get("benchmark") or line.get("plot") or "machine")


def sections(lines: Sequence[Line]) -> dict[str, str]:
    """
    The Markdown of each benchmark in these results, and of the machine if they name one.
    """
    found = {"machine": _machine(lines)} if any("machine" in line for line in lines) else {}
    for name in dict.fromkeys(line["benchmark"] for line in lines if "benchmark" in line):
        found[name] = _table([line for line in lines if line.get("benchmark") == name])
    return found


def _machine(lines: Iterable[Line]) -> str:
    facts = next((line["machine"] for line in lines if "machine" in line), {})
    return "".join(f"* {key}: {value}\n" for key, value in facts.items() if key != "line")


def _table(lines: Sequence[Line]) -> str:
    rows = [line for line in lines if "cells" in line]
    heads, note = rows[0]["columns"], rows[0]["note"]
    out = [f"{rows[0]['title']}." + (f" {note[0].upper()}{note[1:]}." if note else ""), "", _row(heads)]
    out += ["|---|" + "---:|" * (len(heads) - 1), *(_row(line["cells"]) for line in rows)]
    below = [line["below"] for line in lines if "below" in line]
    return "\n".join(out + (["", "; ".join(below) + "."] if below else [])) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def renewed(text: str, found: Mapping[str, str]) -> str:
    """
    `text` with the sections that were measured; the others stay as they are.

    So do the facts of the machine, unless every benchmark of the page was measured on it.
    """
    partly = not set(re.findall(BEGIN.format(name="(.*)").strip(), text)) <= found.keys()
    for name, section in found.items():
        if name == "machine" and partly:
            continue
        begin = BEGIN.format(name=name)
        before, there, rest = text.partition(begin)
        if there:
            text = before + begin + "\n" + section + "\n" + END + rest.partition(END)[2]
    return text


def _check_places(found: Iterable[str], text: str) -> None:
    for name in found:
        if BEGIN.format(name=name) not in text:
            raise SystemExit(f"the document has no place for {name}")


def main(words: Sequence[str] | None = None) -> None:
    """
    Rewrite the document and the plot.
    """
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results", nargs="?", type=Path, default=RESULTS)
    options.add_argument("--doc", type=Path, default=DOC)
    given = options.parse_args(words)
    lines = latest(map(json.loads, given.results.read_text().splitlines()))
    found, text = sections(lines), given.doc.read_text()
    _check_places(found, text)
    given.doc.write_text(renewed(text, found))
    sides = {line["side"]: line["points"] for line in lines if line.get("plot") == "curve"}
    if sides:
        given.doc.with_name(PLOT).write_text(curve(sides, next(line["window"] for line in lines if "window" in line)))


if __name__ == "__main__":
    main()
