"""
Log lines about one table: a short constant sentence, with the action and the table among its extra fields.
"""

import logging
from collections.abc import Mapping
from typing import Any


class TableLog:
    """Writes to `logger`; a line has `action`, unless one is given with it, the table, and the facts given."""

    def __init__(self, logger: logging.Logger, table: str, action: str) -> None:
        self._logger, self._known = logger, {"action": action, "table": table}

    def info(self, sentence: str, **facts: object) -> None:
        """What happened as intended."""
        self._logger.info(sentence, extra=self._extra(facts))

    def warning(self, sentence: str, **facts: object) -> None:
        """What was put off, refused, or comes up soon."""
        self._logger.warning(sentence, extra=self._extra(facts))

    def error(self, sentence: str, exc_info: BaseException | None = None, /, **facts: object) -> None:
        """What does not go on without help; with the traceback of `exc_info`."""
        self._logger.error(sentence, extra=self._extra(facts), exc_info=exc_info)

    def exception(self, sentence: str, **facts: object) -> None:
        """The same, with the traceback of the error that is being handled."""
        self._logger.error(sentence, extra=self._extra(facts), exc_info=True)  # noqa: LOG014 - its caller handles one

    def _extra(self, facts: Mapping[str, object]) -> dict[str, Any]:
        return {**self._known, **facts}
