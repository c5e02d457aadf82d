"""
A bucket or container with keys that a catalog hands out: of each request they are those of its path, renewed before
they end.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.handed_out import Keys, TableKeys
from bookkeeper.stores.object_store import Page, Refused, Remote
from bookkeeper.stores.store import Buffer, Head, ObjectVersion, Part

#: the options as they are now; raises StorageUnavailable where there are none any more
Now = Callable[[], Mapping[str, str]]


class HandedOutRemote:
    """
    Implements Remote for the bucket or container at `root` (with a slash behind it). `make` makes a Remote with the
    keys that its second argument returns at that moment, from settings without keys; `own` returns the one for paths
    for which the catalog handed out no keys.

    A request that the storage refuses is sent once more if there are new keys. It was not carried out, so a conditional
    put may be repeated too.
    """

    def __init__(
        self,
        keys: TableKeys,
        root: str,
        kind: type[Remote],
        make: Callable[[Mapping[str, str], Now], Remote],
        own: Callable[[], Remote],
    ) -> None:
        self._keys, self._root, self._make, self._own = keys, root, make, own
        self.deletes_at_once, self.largest_put = kind.deletes_at_once, kind.largest_put

    async def get(self, path: str, most: int | None = None, known: str = "") -> ObjectVersion:
        found: ObjectVersion = await self._ask("get", path, path, most, known)
        return found

    async def size(self, path: str) -> int:
        return int(await self._ask("size", path, path))

    async def head(self, path: str) -> Head:
        found: Head = await self._ask("head", path, path)
        return found

    async def part(self, path: str, begin: int, end: int) -> Part:
        found: Part = await self._ask("part", path, path, begin, end)
        return found

    async def modified(self, path: str) -> datetime:
        found: datetime = await self._ask("modified", path, path)
        return found

    async def put(self, path: str, data: Buffer, if_match: str | None) -> str:
        return str(await self._ask("put", path, path, data, if_match))

    async def copy(self, path: str, to: str) -> None:
        await self._ask("copy", to, path, to)

    async def begin(self, path: str) -> str:
        return str(await self._ask("begin", path, path))

    async def block(self, path: str, upload: str, number: int, data: bytes) -> Any:
        return await self._ask("block", path, path, upload, number, data)

    async def finish(self, path: str, upload: str, blocks: Sequence[Any]) -> None:
        await self._ask("finish", path, path, upload, blocks)

    async def abandon(self, path: str, upload: str) -> None:
        await self._ask("abandon", path, path, upload)

    async def page(self, prefix: str, token: str | None) -> Page:
        found: Page = await self._ask("page", prefix, prefix, token)
        return found

    async def delete(self, paths: Sequence[str]) -> None:
        parts: dict[str, list[str]] = {}
        for path in paths:
            keys = self._keys.at(self._root + path)
            parts.setdefault(keys.prefix if keys else "", []).append(path)
        for part in parts.values():
            await self._ask("delete", part[0], part)

    async def delete_if(self, path: str, tag: str) -> None:
        await self._ask("delete_if", path, path, tag)

    async def _ask(self, what: str, path: str, *given: Any) -> Any:
        """One request, with the keys of `path`."""
        url = self._root + path
        keys = await self._fresh(url)
        try:
            return await getattr(self._remote(keys), what)(*given)
        except Refused:
            if keys is None or not await asyncio.to_thread(self._keys.fresh_after_refusal, url, keys):
                raise
        return await getattr(self._remote(await self._fresh(url)), what)(*given)

    async def _fresh(self, url: str) -> Keys | None:
        if self._keys.is_due(url):  # the loop of all stores must not wait for the catalog
            return await asyncio.to_thread(self._keys.fresh, url)
        return self._keys.at(url)

    def _remote(self, keys: Keys | None) -> Remote:
        if keys is None:
            return self._own()
        now = partial(_now, self._keys, keys.prefix)
        made: Remote = self._keys.client(
            keys.prefix, {**keys.settings, "": self._root}, partial(self._make, keys.settings, now)
        )
        return made


class HandedOutAzure(HandedOutRemote):
    """Implements Remote, and the leases of AzureRemote."""

    async def take_lease(self, path: str, lease: str, seconds: int, holder: bytes) -> bool:
        """As AzureRemote's."""
        return bool(await self._ask("take_lease", path, path, lease, seconds, holder))

    async def renew_lease(self, path: str, lease: str) -> bool:
        """As AzureRemote's."""
        return bool(await self._ask("renew_lease", path, path, lease))

    async def release_lease(self, path: str, lease: str) -> bool:
        """As AzureRemote's."""
        return bool(await self._ask("release_lease", path, path, lease))


def _now(ring: TableKeys, prefix: str) -> Mapping[str, str]:
    keys = ring.at(prefix)
    if keys is None or keys.prefix != prefix:
        raise StorageUnavailable(f"the catalog hands out no keys for {prefix} any more")
    return keys.options
