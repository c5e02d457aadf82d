"""
Real servers for tests, each on a free port of this machine and ended by its pid; usable without pytest.
"""

from tests.servers.pg import postgres
from tests.servers.process import Server, Unavailable, scratch
from tests.servers.rest import rest_catalog

__all__ = ["Server", "Unavailable", "postgres", "rest_catalog", "scratch"]
