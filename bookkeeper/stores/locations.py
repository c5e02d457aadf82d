"""
Locations of files, compared the way storage would resolve them.

One rule for all: a location that needs interpretation (`..`, percent signs, backslashes) is refused, not interpreted.
"""

import os
import re
from collections.abc import Sequence

from bookkeeper.errors import PathRefused

_URL = re.compile(r"([a-z][a-z0-9+.-]*):(.*)", re.DOTALL)
_SAME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs", "gcs": "gs"}
_SUSPECT = re.compile(r"[\x00-\x1f\x7f\\%?#]")
_PLAIN = r"(?>(?:file|s3|gs|abfss)://[^/\x00-\x1f\x7f\\%?#]*+(?:/(?!\.\.?(?:[/\n]|\Z))[^/\x00-\x1f\x7f\\%?#]++)++)"
#: the common case: what `normal` returns unchanged
_NORMAL = re.compile(_PLAIN)
_LINES = re.compile(rf"(?:{_PLAIN}\n)*+")
#: of UTF-8: all that may be in a name, and the slash
_HARMLESS = bytes(byte for byte in range(256) if not _SUSPECT.match(chr(byte)))


def absolute(where: str) -> str:
    """Returns a URL unchanged, and a path of the disk as an absolute one."""
    return where if ":" in where else os.path.abspath(where)


def normal(location: str) -> str:
    """
    One spelling per file: `/x`, `file:/x` and `file:///x` become `file:///x`, aliases of a scheme become one.

    Raises PathRefused for a location that storage could resolve to another place.
    """
    if _NORMAL.fullmatch(location):
        return location
    match = _URL.fullmatch(location)
    scheme, rest = (match[1], match[2]) if match else ("file", location)
    if _SUSPECT.search(rest):
        raise PathRefused(f"{location[:300]!r} holds characters that storage could interpret (control, \\, %, ?, #)")
    authority, path = _split(rest, location)
    if path != "/" and any(part in ("", ".", "..") for part in path.split("/")[1:]):
        raise PathRefused(f"{location[:300]!r} holds an empty, '.' or '..' segment")
    return f"{_SAME.get(scheme, scheme)}://{authority}{path}"


def at_account(location: str) -> str:
    """
    `normal`, and of Azure one spelling of scheme and host: `wasbs://c@a.blob.core.windows.net/x` becomes
    `abfss://c@a.dfs.core.windows.net/x`, which is the same blob.
    """
    plain = normal(location)
    return one_account(plain) if plain.startswith(("abfss://", "wasbs://")) else plain


def one_account(url: str) -> str:
    """The same for the beginning of a location, whose scheme is of Azure."""
    authority, slash, path = url.partition("://")[2].partition("/")
    return f"abfss://{authority.replace('.blob.', '.dfs.', 1)}{slash}{path}"


def are_normal(locations: Sequence[str]) -> bool:
    """
    Whether `normal` surely returns each of these unchanged: 0.2 us a location in one folder, 0.6 us in several, one by
    one 1.1.
    """
    lines = "\n".join([*locations, ""])
    if lines.count("\n") != len(locations):
        return False
    return _common_folder(locations, lines) is not None or _LINES.fullmatch(lines) is not None


def common_folder(locations: Sequence[str]) -> str | None:
    """
    The folder, with a slash behind it, in which all of these surely are files that `normal` returns unchanged; 0.2 us a
    location.
    """
    lines = "\n".join([*locations, ""])
    return _common_folder(locations, lines) if lines.count("\n") == len(locations) else None


def _common_folder(locations: Sequence[str], lines: str) -> str | None:
    """As `common_folder`, of locations without a line break; each has a line in `lines`."""
    folder = locations[0].rpartition("/")[0] + "/" if locations else ""
    in_one = (
        _NORMAL.fullmatch(folder + "x") is not None
        and lines.startswith(folder)
        and lines.count("\n" + folder) == len(locations) - 1
        and lines.count("/") == len(locations) * folder.count("/")
        # No name is empty, `.` or `..`; a short one is looked at alone.
        and min(map(len, locations)) >= len(folder) + 3
        and len(lines.encode(errors="replace").translate(None, _HARMLESS)) == len(locations)
    )
    return folder if in_one else None


def normal_file(location: str) -> str:
    """
    `normal` for the location of a file; raises PathRefused also where it names a folder.
    """
    if location.endswith("/"):
        # To storage `x/` is another name than `x`, so readers would not find it.
        raise PathRefused(f"{location[:300]!r} names a folder, not a file")
    return normal(location)


def _split(rest: str, location: str) -> tuple[str, str]:
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path or "/"
    else:
        authority, path = "", rest
    if not path.startswith("/"):
        raise PathRefused(f"{location[:300]!r} is not an absolute location")
    return authority, path.removesuffix("/") if len(path) > 1 else path


def inside(location: str, root: str) -> bool:
    """
    Whether the file at `location` lies below the folder `root`; raises PathRefused like `normal`.
    """
    plain, folder = normal(location), normal(root).rstrip("/") + "/"
    return plain.startswith(folder) and plain != folder


def local_path(location: str) -> str | None:
    """
    The path on this machine's disk, or None when the location is elsewhere.
    """
    plain = normal(location)
    return plain.removeprefix("file://") if plain.startswith("file:///") else None


def join(root: str, *parts: str) -> str:
    """
    A location below `root`.
    """
    return "/".join((root.rstrip("/"), *parts))
