"""
When a writer may go over to a new card while rows of the old one are not published yet.
"""

from typing import Any

from bookkeeper.core.card import Card
from bookkeeper.errors import WrongFolder


def check_same_table(old: Card, new: Card) -> None:
    """
    Raises WrongFolder when the card now belongs to another table.
    """
    if new.table_uuid != old.table_uuid:
        raise WrongFolder(
            f"the folder of {old.table} now belongs to {new.table} with uuid {new.table_uuid}",
            hint="The table was made anew: start the writer again, its unpublished rows were for the old one.",
        )
    if new.folder != old.folder:
        raise WrongFolder(
            f"another txlog folder of {old.table} is in the place of this writer's",
            hint="Put the right one back. If this one is right: start the writer again.",
        )


def mixes(old: Card, new: Card) -> bool:
    """
    Whether files written by either card may be named by one txlog: same spec, same place, no column dropped.

    The txlog then names the newer schema, in which the older files' columns all exist.
    """
    same = _spec(old) == _spec(new) and old.data_path == new.data_path
    return same and set(old.schema.field_ids) <= set(new.schema.field_ids)


def _spec(card: Card) -> dict[str, Any]:
    return next(spec for spec in card.specs if spec["spec-id"] == card.spec_id)
