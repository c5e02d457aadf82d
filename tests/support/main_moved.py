"""
An empty commit at any time: after it no attempt that began before can succeed.
"""

from datetime import datetime
from typing import Any

from bookkeeper.contract import marks, marks_json
from bookkeeper.ledger.ledger import Ledger


def move_main(catalog: Any, identifier: str, at: datetime) -> None:
    """As the duty that renews marks does it."""
    properties = catalog.load_table(identifier).properties
    ledger = Ledger(catalog, identifier, lambda: at)
    view = ledger.load(marks_json.loads(properties[marks.PROPERTY]).folder)
    ledger.record(view, view.marks, "renew")
