"""
Connections to a catalog on an SQL server: shared, and bounded on both sides where it is Postgres.
"""

import os
import threading
from datetime import timedelta
from typing import Any

#: drivers of Postgres that know libpq's parameters
LIBPQ = ("postgresql", "postgresql+psycopg2", "postgresql+psycopg")
_OPENING, _engines = threading.Lock(), dict[Any, Any]()


def share(catalog: Any, patience: timedelta) -> None:
    """
    Gives a catalog the connections that all catalogs of its URL in this process share.
    """
    own = getattr(catalog, "engine", None)
    if own is not None:
        catalog.engine = _engine(own.url, own.pool._pre_ping, os.getpid(), patience)
        own.dispose()


def _engine(url: Any, pre_ping: bool, process: int, patience: timedelta) -> Any:
    """The one engine of this URL and process: a fork must not use its parent's connections."""
    from sqlalchemy import create_engine

    key = (url.render_as_string(hide_password=False), pre_ping, process)
    with _OPENING:
        if key not in _engines:
            bounds = {"pool_size": 10, "max_overflow": 20, "pool_timeout": patience.total_seconds()}
            _engines[key] = create_engine(url, pool_pre_ping=pre_ping, **bounds)
            if url.drivername in LIBPQ:
                bound_transactions(_engines[key], patience)
        return _engines[key]


def bound_transactions(engine: Any, patience: timedelta) -> None:
    """
    Makes Postgres end the transactions that this process leaves behind, on every connection made from now on.

    Without it, a client that vanishes between UPDATE and COMMIT keeps its table's row locked for good, and one that
    stops waiting for such a lock leaves its backend waiting. Both now end before `patience` does. Bounds that the URL,
    the role, the database or the server sets stay.
    """
    from sqlalchemy import event

    most = max(2, int(patience.total_seconds() * 1000))
    bounds = {"lock_timeout": most // 2, "idle_in_transaction_session_timeout": most // 2, "statement_timeout": most}
    rows = ", ".join(f"('{name}', '{milliseconds}')" for name, milliseconds in bounds.items())
    # By a query and not in the startup packet: PgBouncer refuses parameters there that it does not know.
    query = (
        f"SELECT set_config(pg_settings.name, bounds.value, false) FROM (VALUES {rows}) AS bounds (name, value) "
        "JOIN pg_settings ON pg_settings.name = bounds.name WHERE pg_settings.source = 'default'"
    )

    def bound(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(query)
        connection.commit()

    event.listen(engine, "connect", bound)


def with_deadlines(uri: str, patience: timedelta) -> str:
    """
    The URL with bounds, without which libpq notices after minutes to hours that a host is gone; those in it stay.
    """
    from sqlalchemy import make_url

    seconds = max(2, int(patience.total_seconds()))
    url = make_url(uri)
    wanted: dict[str, Any] = {
        "connect_timeout": str(seconds),
        "keepalives_idle": str(seconds // 2),
        "keepalives_interval": str(max(1, seconds // 6)),
        "keepalives_count": "3",
        "tcp_user_timeout": str(seconds * 1000),
    }
    named = url.update_query_dict({key: value for key, value in wanted.items() if key not in url.query})
    return named.render_as_string(hide_password=False)
