"""
Whether Python in a document can be right: it compiles, what it imports of ours is there, and takes those keywords.
"""

import ast
import importlib
import inspect
from typing import Any

from tests.packaging.project import packages

OURS = {name.rstrip("*") for name in packages()}


def check(text: str) -> None:
    """
    Raises SyntaxError, ImportError, AttributeError or TypeError for what cannot run.
    """
    tree = ast.parse(text)
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in OURS:
            known |= {alias.asname or alias.name: _imported(str(node.module), alias.name) for alias in node.names}
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := _resolved(node.func, known)) is not None:
            inspect.signature(called).bind_partial(**{word.arg: None for word in node.keywords if word.arg})


def _imported(module: str, name: str) -> Any:
    found = importlib.import_module(module)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")


def _resolved(node: ast.expr, known: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _resolved(node.value, known)) is not None:
        return getattr(owner, node.attr)
    return None
