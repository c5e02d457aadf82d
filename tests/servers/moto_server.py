"""
moto behind one lock: its conditional put looks first and writes then, which two requests at once would fool.
"""

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

_LOCK = threading.Lock()
_MOTO = DomainDispatcherApplication(create_backend_app)


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """
    One request at a time, with its whole body.
    """
    with _LOCK:
        answer: Iterable[bytes] = _MOTO(environ, start_response)
        return list(answer)


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
