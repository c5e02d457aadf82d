"""
The page: one file with everything in it, and the headers that keep anything else out.
"""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from bookkeeper.console.web import HTML, Answer


@cache
def page() -> Answer:
    """
    The page; its own script and style are named by their hash, nothing else may run or be loaded.
    """
    text = files("bookkeeper.http").joinpath("page.html").read_text("utf-8")
    script, style = (_hash(text, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Answer(text.encode(), HTML, headers={"Content-Security-Policy": policy})


def _hash(text: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert found is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'"
