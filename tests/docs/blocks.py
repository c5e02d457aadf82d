"""
What README and docs/ hold that can be wrong: blocks of code, commands in the prose, links.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.packaging.project import ROOT

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^( *)```([\w-]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:bookkeeper|writer|reaper) [^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of code; `kind` is what stands behind the fence."""

    doc: str
    line: int
    kind: str
    text: str

    @property
    def first(self) -> str:
        """Its first line, which names it in the list of what is skipped."""
        return self.text.strip().split("\n")[0]

    def __str__(self) -> str:
        return f"{self.doc}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """
    The fenced blocks of a document.
    """
    text, name = path.read_text("utf-8"), str(path.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, found.start()) + 1, found[2], re.sub(f"(?m)^{found[1]}", "", found[3]))
        for found in _FENCED.finditer(text)
    ]


def prose(path: Path) -> str:
    """
    A document without its fenced blocks.
    """
    return _FENCED.sub("", path.read_text("utf-8"))


def inline_commands(path: Path) -> list[str]:
    """
    The commands of ours that the prose names.
    """
    return sorted(set(_INLINE.findall(prose(path))))


def links(path: Path) -> list[str]:
    """
    Where a document points to, the web left out.
    """
    return sorted({link for link in _LINK.findall(prose(path)) if not link.startswith(("http:", "https:"))})


def anchors(path: Path) -> set[str]:
    """
    The anchors of a document's headings, as GitHub makes them.
    """
    plain = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading) for heading in _HEADING.findall(prose(path)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}
