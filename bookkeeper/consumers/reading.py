"""
What can go wrong while a file of the table is read, as errors of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.errors import BookkeeperError, ManifestCorrupt, NotAFile, NotPossible, StorageUnavailable
from bookkeeper.stores.beneath import LinkRefused
from bookkeeper.stores.local import LINKED
from bookkeeper.stores.store import translated


@contextmanager
def reading(what: str) -> Iterator[None]:
    """
    Turns the errors of file systems and decoders into Missing, StorageUnavailable, or NotPossible for a bad file.
    """
    try:
        with translated(what):
            try:
                yield
            except LinkRefused as exc:
                raise NotPossible(f"{exc.strerror}, so {what} is not read", hint=LINKED) from exc
    except NotAFile as exc:
        raise NotPossible(f"{exc}", hint=LINKED) from exc
    except ManifestCorrupt as exc:
        raise NotPossible(f"{exc}", hint=exc.hint) from exc
    except BookkeeperError:
        raise
    except (pa.ArrowException, ValueError) as exc:
        raise NotPossible(
            f"{what} cannot be decoded: {exc}", hint="`bookkeeper verify` tells whether it is whole."
        ) from exc
    except Exception as exc:
        # The file systems of pyiceberg share no root of errors.
        raise StorageUnavailable(f"{what}: {type(exc).__name__}: {exc}") from exc
