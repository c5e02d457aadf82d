"""
The page: one file with everything in it, and the headers that keep anything else out.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from bookkeeper.console.web import HTML, Response


@cache
def page() -> Response:
    """
    The page; its own script and style are named by their hash, nothing else may run or be loaded.
    """
    script, style = _part("page.js"), _part("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    text = _part("page.html").replace("/*style*/", style).replace("/*script*/", script)
    return Response(text.encode(), HTML, headers={"Content-Security-Policy": policy})


def _part(name: str) -> str:
    return files("bookkeeper.observe.http").joinpath("static", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
