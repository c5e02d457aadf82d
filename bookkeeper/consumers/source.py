"""
The table that a consumer reads, and the place where it begins.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.dead_letters import only
from bookkeeper.config.load import load
from bookkeeper.config.settings import Settings
from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.consumers.place import Place, parse
from bookkeeper.consumers.place_keepers import PlaceKeeper
from bookkeeper.consumers.place_on_main import ahead, beginning, end, oldest, since
from bookkeeper.consumers.registration import Registration
from bookkeeper.consumers.selection import ALL, Selection
from bookkeeper.contract.known_table import advising
from bookkeeper.contract.txlog_folder import Folder, folder_url
from bookkeeper.errors import ConfigInvalid, NotPossible, PlaceExpired, StorageUnavailable, WrongFolder
from bookkeeper.history.main_history import MainHistory
from bookkeeper.stores.store import Store

Clock = Callable[[], datetime]
BEGINNING, OLDEST, END = "beginning", "oldest", "end"
STARTS: Mapping[str, Callable[[MainHistory], Place]] = {BEGINNING: beginning, OLDEST: oldest, END: end}
_NOT_YET = 'Take "end" for what is committed from now on, or a time that has come.'
_ZONE = "Name its zone: datetime(..., tzinfo=UTC), or on the command line 2026-01-31T12:00:00Z."
_TRIES = 5


@dataclass(frozen=True)
class Source:
    """
    A table that is consumed: its section of the configuration, how it is loaded, its uuid and its txlog folder; and the
    columns that were asked for.
    """

    about: TableSettings
    load: Callable[[], Table]
    uuid: str
    folder: Store
    columns: Selection = ALL

    @classmethod
    def of(cls, config: str | os.PathLike[str] | Settings, table: str | None, columns: Iterable[str] = ()) -> "Source":
        """Raises as Consumer.open; for unknown `columns` before anything is registered, which would be held for."""
        environ = os.environ  # noqa: TID251 a library's user has no command line that reads it
        settings = config if isinstance(config, Settings) else load(os.fspath(config), environ)
        about = _picked(settings, table)
        with advising(settings.catalog, about):
            catalog = open_catalog(settings.catalog, scans=False)
            loaded = load_table(catalog, about.identifier)
        selection = Selection.of(loaded, columns)
        url, uuid = folder_url(about, loaded.metadata.location), str(loaded.metadata.table_uuid)
        folder = stores_of(catalog, about.identifier)(url)
        if Folder(folder).card().table_uuid != uuid:
            raise WrongFolder(f"{url} belongs to another table than {about.identifier}")
        return cls(about, lambda: load_table(catalog, about.identifier), uuid, folder, selection)

    def registration(self, name: str, clock: Clock) -> Registration:
        """The record of the consumer `name`; raises ConfigInvalid, NotPossible."""
        return Registration(self.folder, self.about.consumers, name, self.uuid, clock)


def begun(
    loading: Callable[[], Table], keeper: PlaceKeeper, registration: Registration, start: str | datetime
) -> Place:
    """
    The place of a consumer that is opened, registered and durable, after this run took over.

    Registered first, loaded second: what is there after the registration stays. Raises as Consumer.open.
    """
    name, table = registration.name, registration.table
    where = f"the output of {name}"
    kept, registered = keeper.read(name), registration.read()
    if kept is None and registered is not None and registration.has_progressed:
        raise NotPossible(
            f"the output holds no place of {name}, which had read up to {registered.when}: is it another output?",
            hint=f"Open the right one. To start anew: `bookkeeper consumers remove {name}`, with an empty output.",
        )
    place = registered_at(loading, registration, start) if kept is None else parse(kept, table, where)
    place = parse(keeper.begin(name, str(place)), table, where)
    registration.follow(place)
    return place


def registered_at(loading: Callable[[], Table], registration: Registration, start: str | datetime | Place) -> Place:
    """
    The place in the record of a consumer; of a new one `start`, which is registered. Raises as Consumer.open.
    """
    for _ in range(_TRIES):
        place = registration.read()
        if place is not None:
            return place
        place = start if isinstance(start, Place) else start_of(loading().metadata, start, registration.now())
        if registration.create(place):
            try:
                ahead(MainHistory(loading().metadata), place)
                return place
            except PlaceExpired:
                registration.forget()
                if isinstance(start, Place):
                    raise
    raise StorageUnavailable(f"snapshots expire faster than {registration.name} can be registered")


def start_of(metadata: TableMetadata, start: str | datetime, now: datetime) -> Place:
    """
    The first place of a consumer; raises ConfigInvalid for a time that has not come or names no zone, and NotPossible
    when it cannot be told any more.
    """
    history = MainHistory(metadata)
    if isinstance(start, datetime):
        return since(history, checked_time(start, now))
    if start not in STARTS:
        words = f'"{BEGINNING}", "{OLDEST}", "{END}" or a datetime'
        raise ConfigInvalid(f"start = {start!r}: {words} is expected")
    return STARTS[start](history)


def checked_time(start: datetime, now: datetime) -> datetime:
    """
    A time from which on rows are read; raises ConfigInvalid when it has not come, or names no zone.
    """
    if start.tzinfo is None:
        raise ConfigInvalid(f"{start.isoformat()}, from which on rows are read, names no zone", hint=_ZONE)
    if start > now:
        when = start.isoformat(timespec="seconds")
        raise ConfigInvalid(f"{when}, from which on rows are read, has not come", hint=_NOT_YET)
    return start


def _picked(settings: Settings, name: str | None) -> TableSettings:
    if name is None and (single := only(settings.tables)) is not None:
        return single
    if name is None or name not in settings.tables:
        known = ", ".join(sorted(settings.tables)) or "none"
        raise ConfigInvalid(f"{settings.source} has the tables {known}; {name} is not one of them")
    return settings.tables[name]
