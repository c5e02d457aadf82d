"""
The fault classes there are: the one place where a module of them is named.
"""

from importlib import import_module

from tests.chaos.tally import FaultClass

#: each has CLASSES, a sequence of FaultClass
MODULES = (
    "tests.chaos.crashes",
    "tests.chaos.storage",
    "tests.chaos.storms",
    "tests.chaos.upserts",
    "tests.chaos.catalogs",
    "tests.chaos.leases",
    "tests.chaos.objects",
    "tests.chaos.kills",
    "tests.chaos.zombies",
    "tests.chaos.races",
    "tests.chaos.outages",
    "tests.chaos.fuzz",
)


def classes(part: str = "") -> list[FaultClass]:
    """
    All fault classes with `part` in their names, in the order of the table.
    """
    found = [item for module in MODULES for item in import_module(module).CLASSES]
    return [item for item in found if part in item.name]
