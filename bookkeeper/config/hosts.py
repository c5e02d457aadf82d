"""
The names under which a server answers. Without such a list, a foreign page can make a browser ask a server on its own
machine under a foreign name (DNS rebinding), and read the answer.
"""

import re
from collections.abc import Collection
from ipaddress import IPv6Address, ip_address

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,255})(?::[0-9]{0,5})?")


def host_name(header: str) -> str:
    """
    The name in a `Host` header without its port, or an address in its usual form; raises ValueError.
    """
    found = _HOST.fullmatch(header.strip())
    if not found:
        raise ValueError("a name or an address")
    return usual(found[1].strip("[]"))


def usual(name: str) -> str:
    """
    The form in which names and addresses are compared; a socket may report an IPv4 address as an IPv6 one.
    """
    try:
        found = ip_address(name.partition("%")[0])
    except ValueError:
        return name.lower().removesuffix(".")
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


def served(name: str, reached_at: str, allowed: Collection[str]) -> bool:
    """
    Whether `name` (of `host_name`) is this machine's own: a loopback name, the address `reached_at` by which the
    connection came in, or one of `allowed` (of `usual`).
    """
    return name == "localhost" or name in allowed or name == usual(reached_at) or _loopback(name)


def _loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def check_names(names: Collection[str]) -> None:
    """
    Raises ValueError for names that no `Host` header has (a port, a URL, a pattern).
    """
    for name in names:
        try:
            good = host_name(f"[{name}]" if ":" in name else name)
        except ValueError:
            good = ""
        if not good:
            raise ValueError("a list of names or addresses without port, such as bookkeeper.example.org,")
