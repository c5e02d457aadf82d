"""
The commit of a fold, on the table's head as it is now.

A plan was computed beside the ticks, and the table went on meanwhile. It is committed only on a head for which it is
right. Each rule keeps a deleted row deleted, or a row that is not deleted alive:

1. Every folded equality delete file is live, as it was. One that is gone may have been applied by a rewrite.
2. Every live data file that a folded one applies to was examined. One that was not, such as the new file of a rewrite,
   keeps an old data sequence number, and may have rows that only the equality delete file hides.
3. A data file of the plan that is gone is dropped from the plan, with the position delete file that was made for it.
   One that is live twice, or with another data sequence number, refuses the plan: positions hide rows by path alone.
4. Of position delete files only predecessors go: live ones for one data file, whose positions are in the new file.

Manifests that were there when the plan was made have not changed, so only those that came since are read.

The snapshot is a `delete`, never a `replace`. Iceberg Java looks for new delete files in snapshots of the operations
`overwrite` and `delete` only. Beside a fold labelled `replace`, a compaction begun earlier commits a new file with rows
that the equality delete file hid, and nothing hides them any more. With `delete` it finds the new position delete file,
and refuses itself. Streams skip `delete` snapshots, as they do for retention.

A crash before the commit leaves position delete files and manifests that no snapshot names, for the orphan sweep. A
crash after it leaves nothing to do: removed files have DELETED entries, for the job that expires their snapshot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from pyiceberg.manifest import ManifestContent

from bookkeeper.contract.delete_scope import DeleteFile, Scope, scopes_of
from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import FoldOutdated
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.ledger.fold_plan import FoldedData, FoldPlan
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import find_live
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import ManifestDelete
from bookkeeper.manifests.header import Header
from bookkeeper.manifests.reader import Row, with_live_files
from bookkeeper.manifests.walk import Heads

#: its files may be in the orphan sweep's hands after an hour
MOST_AGE = timedelta(minutes=20)


def commit_fold(ledger: Ledger, view: View, plan: FoldPlan) -> View:
    """
    The table after the fold; raises FoldOutdated when the plan is not right for this head, and Retry like an append.
    """
    if plan.table_uuid != view.uuid:
        raise FoldOutdated(f"{ledger.identifier} was made anew")
    if not timedelta(0) <= ledger.clock() - plan.begun < MOST_AGE:
        raise FoldOutdated(f"the fold of {ledger.identifier} was begun more than {MOST_AGE} ago, or the clock was set")
    view = replace(view, manifests=tuple(ledger.manifests(view)))  # or its manifest list is read for each step
    live = _live_files(ledger, view, plan)
    removed = _delete_files(ledger, view, plan.folded, [file for item in live.values() for file in item.predecessors])
    dead = {key: item for key, item in live.items() if item.positions is None}
    removed += _data_files(ledger, view, dead)
    added = [(item.spec_id, item.positions) for item in live.values() if item.positions is not None]
    return ledger.fold(view, removed, added)


def drop_delete_file(ledger: Ledger, view: View, file: DeleteFile) -> View:
    """
    The table without a delete file, the rows of which it does not delete any more; raises FoldOutdated when it is not
    live, or more than once, and Retry like an append.
    """
    return ledger.fold(view, _delete_files(ledger, view, [file], []), [], "drop-delete-file")


def _live_files(ledger: Ledger, view: View, plan: FoldPlan) -> dict[str, FoldedData]:
    """The data files of the plan that are live; raises FoldOutdated by the rules 2 and 3."""
    data = with_live_files(ledger.manifests(view), ManifestContent.DATA)
    listed = {item.manifest_path for item in data}
    live = {key: item for key, item in plan.files.items() if item.manifest in listed}
    newest, new = newest_by_scope(plan.folded), [item for item in data if item.manifest_path not in plan.manifests]
    for manifest, rows in ledger.reader(view).live(new):
        for key in _planned(ledger.header_for(view, manifest), manifest, rows, plan, newest):
            if key in live:
                raise FoldOutdated(f"{key[:300]} is live twice")
            live[key] = plan.files[key]
    return live


def newest_by_scope(deletes: Iterable[DeleteFile]) -> dict[Scope, int]:
    """
    The largest number of data that these delete files apply to, by scope.
    """
    newest = dict[Scope, int]()
    for item in deletes:
        newest[item.scope] = max(item.largest_number, newest.get(item.scope, -1))
    return newest


def _planned(
    header: Header | None, manifest: ListedManifest, rows: Iterable[Row], plan: FoldPlan, newest: Mapping[Scope, int]
) -> Iterable[str]:
    """The files of a manifest that came since that the plan changes; raises FoldOutdated for one not examined."""
    for row, head in rows:
        key, sequence = file_key(row.path), head.sequence or 0
        if key in plan.files and sequence != plan.files[key].sequence_number:
            raise FoldOutdated(f"{key[:300]} is live with another sequence number")
        if key in plan.files:
            yield key
        if plan.examined.get(key) == sequence:
            continue
        if header is None:  # its partition is not known: it may be any
            applies = any(number >= sequence for number in newest.values())
        else:
            (partition,) = header.partition_keys([row.partition])
            applies = any(
                newest.get(scope, -1) >= sequence for scope in scopes_of(key, manifest.partition_spec_id, partition)
            )
        if applies:
            raise FoldOutdated(
                f"{key[:300]} came since the fold was planned, and may have rows that it would bring back"
            )


def _delete_files(
    ledger: Ledger, view: View, folded: Collection[DeleteFile], predecessors: Collection[DeleteFile]
) -> list[ManifestDelete]:
    """The delete manifests that lose these files; raises FoldOutdated by rule 1."""
    wanted = {(item.key, item.sequence_number) for item in (*folded, *predecessors)}
    found = find_live(
        ledger,
        view,
        {number for _, number in wanted},
        view.metadata.last_sequence_number,
        wanted={key for key, _ in wanted},
        content=ManifestContent.DELETES,
    )
    met = _versions(found)
    for item in folded:
        if met[item.key, item.sequence_number] != 1:
            raise FoldOutdated(f"the equality delete file {item.key[:300]} is not live any more, or more than once")
    return found


def _data_files(ledger: Ledger, view: View, dead: Mapping[str, FoldedData]) -> list[ManifestDelete]:
    """The data manifests that lose these files; raises FoldOutdated where one cannot be written anew."""
    numbers = {item.sequence_number for item in dead.values()}
    found = find_live(ledger, view, numbers, view.metadata.last_sequence_number, dead) if dead else []
    if _versions(found) != Counter((key, item.sequence_number) for key, item in dead.items()):
        raise FoldOutdated("data files without a row left are not live any more, or more than once")
    return found


def _versions(found: Iterable[ManifestDelete]) -> Counter[tuple[str, int | None]]:
    """How often each file with its data sequence number is among the removed files."""
    return Counter(
        (file_key(row.path), Heads(item.manifest).of(row).sequence) for item in found for row in item.dropped
    )
