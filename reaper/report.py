"""
Plans and orphans as rows for programs and as tables for people.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console import output

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from reaper.compactor.choose_files import Candidate
    from reaper.compactor.compactor import Compacted
    from reaper.compactor.rewrite_plan import Plan
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


def compaction_record(engine: str, plan: "Plan") -> Row:
    """
    What compaction would rewrite, for a program.
    """
    groups = [
        {
            "partition": _partition(plan.table, item),
            "spec": item.files[0].spec_id,
            "files": len(item.files),
            "bytes": item.bytes,
            "last": item.last,
            "why": item.reason,
        }
        for item in plan.candidates
    ]
    return {
        "engine": engine,
        "live files": plan.live_files,
        "live bytes": plan.live_bytes,
        "pending rewrites": len(plan.pending),
        "rewrite": groups,
        "bytes": plan.bytes,
        "left alone": {reason: count for reason, count in plan.left_alone.items() if count},
        "failures": [{"files": count, "why": why} for why, count in plan.failures.items()],
    }


def _partition(table: "Table", item: "Candidate") -> str:
    """The partition as a path; its stored values where they are none that can be shown."""
    from pyiceberg.typedef import Record

    first = item.files[0]
    spec = table.specs().get(first.spec_id)
    try:
        return spec.partition_to_path(Record(*first.partition), table.schema()) if spec else str(first.partition)
    except Exception:  # noqa: BLE001 - a value of a type that was widened, say
        return str(first.partition)


def show_compaction(record: Row) -> None:
    """
    Prints the record for a person.
    """
    if "engine" not in record:
        return
    names = ("table", "engine", "live files", "live bytes", "pending rewrites", "bytes")
    output.show_record({**{name: record[name] for name in names}, "left alone": _counted(record)}, False)
    click.echo("\nwould be rewritten:")
    output.show_rows(
        [{name: item[name] for name in ("partition", "files", "bytes", "why")} for item in record["rewrite"]], False
    )
    if record["failures"]:
        click.echo("\nleft alone for a while:")
        output.show_rows(record["failures"], False)
    click.echo("")


def _counted(record: Row) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in record["left alone"].items()) or "nothing"


def round_record(done: "Compacted") -> Row:
    """
    What a round of compaction did, for a program.
    """
    fields = asdict(done)
    left = fields.pop("left_alone")
    return {**fields, "left_alone": sum(left.values())}
