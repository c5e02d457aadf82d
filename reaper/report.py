"""
Plans and orphans as rows for programs and as tables for people.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console import output

if TYPE_CHECKING:
    from reaper.orphans import Orphan
    from reaper.result import Outlook

Row = dict[str, Any]
WHAT = {
    "data": "data file",
    "statistics": "statistics file",
    "manifests": "manifest",
    "manifest_lists": "manifest list",
    "metadata": "metadata file",
}


def plan_record(found: "Outlook", now: datetime) -> Row:
    """
    What would go and why the rest stays, for a program.
    """
    delete = [
        {"what": WHAT[kind], "name": name, "bytes": size}
        for kind, sizes in found.files.kinds()
        for name, size in sizes.items()
    ]
    return {
        "expire": list(found.plan.expire),
        "delete": delete,
        "bytes": sum(item["bytes"] for item in delete),
        "orphans": orphan_rows(found.orphans, now),
        "kept": [{"snapshots": list(kept.snapshots), "why": list(kept.reasons)} for kept in found.plan.kept],
        "left alone": list(found.refused),
        "brake": found.plan.brake,
    }


def orphan_rows(found: "Sequence[Orphan]", now: datetime) -> list[Row]:
    """
    A row for each orphan, with the reason why it goes or stays.
    """
    return [{"name": item.location, "bytes": item.bytes, "goes": item.due(now), "why": item.why(now)} for item in found]


def show_plan(record: Row) -> None:
    """
    Prints the record for a person.
    """
    if "expire" not in record:
        return
    totals = {"table": record["table"], "snapshots": len(record["expire"]), "files": len(record["delete"])}
    output.show_record({**totals, "bytes": record["bytes"], "brake": record["brake"]}, False)
    snapshots = [{"what": "snapshot", "name": str(snapshot), "bytes": None} for snapshot in record["expire"]]
    left = [{"what": "left alone: not in the table", "name": name, "bytes": None} for name in record["left alone"]]
    for title, rows in (
        ("goes", snapshots + record["delete"] + left),
        ("stays", [_kept(item) for item in record["kept"]]),
    ):
        click.echo(f"\n{title}:")
        output.show_rows(rows, False)
    if record["orphans"]:
        click.echo("\norphans:")
        output.show_rows(record["orphans"], False)
    click.echo("")


def _kept(item: Row) -> Row:
    ids = item["snapshots"]
    return {"snapshots": len(ids), "oldest": str(ids[0]), "newest": str(ids[-1]), "why": " + ".join(item["why"])}
