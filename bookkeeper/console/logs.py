"""
Logging for programs: a short constant sentence and its extra fields, for people or as JSON lines, on stderr.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

FORMATS = ("human", "json")
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(log_format: str = "human", level: str = "INFO", stream: TextIO | None = None) -> None:
    """
    Send what our loggers say from `level` on, and others' warnings, to `stream` (default: stderr).

    Replaces what was set up before.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else Human())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("bookkeeper", "writers", "reaper", "spark_jobs"):
        logging.getLogger(name).setLevel(level.upper())


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """
    What was given as `extra` to a log call.
    """
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class Human(logging.Formatter):
    """
    `12:00:01 WARNING commit postponed  action=postpone table=events`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """
        One line, and the traceback if there is one.
        """
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        fields = " ".join(f"{key}={_word(value)}" for key, value in extras(record).items())
        line = f"{at} {level}{record.getMessage()}  {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _word(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(char.isspace() or char == '"' for char in text) else text


class JsonLines(logging.Formatter):
    """
    One JSON object a line: time, level, logger, message, and the extra fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        """
        One line.
        """
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fixed = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        fixed["message"] = record.getMessage()
        if record.exc_info:
            fixed["exception"] = self.formatException(record.exc_info)
        return json.dumps({**extras(record), **fixed}, default=str)
