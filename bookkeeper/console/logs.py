"""
Logging for programs: a short constant sentence and its extra fields, for people or as JSON lines, on stderr.

Secrets are hidden (see `secrets`) whichever library logs them; a line that cannot be written is dropped.
"""

import json
import logging
import os
import sys
import threading
import traceback
from datetime import UTC, datetime
from io import TextIOWrapper
from types import TracebackType
from typing import Any, TextIO

from bookkeeper.console import status_line
from bookkeeper.console.secrets import redacted, scrubbed

FORMATS = ("auto", "human", "json")
OURS = ("bookkeeper", "writers", "reaper", "spark_jobs")
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(log_format: str = "auto", level: str = "INFO", stream: TextIO | None = None) -> None:
    """
    Send our loggers' lines from `level` on, and other libraries' warnings, to `stream` (default: stderr).

    `auto` is for people on a terminal, and for programs elsewhere. Replaces what was set up before.
    """
    where = stream or sys.stderr
    handler = Lines(where)
    handler.setFormatter(JsonLines() if as_json(log_format, where) else Human())
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())


def as_json(log_format: str, stream: TextIO) -> bool:
    """
    Whether log lines to `stream` are JSON.
    """
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


def stamp(moment: datetime) -> str:
    """
    A time as log lines give it: UTC, milliseconds.
    """
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """
    What was given as `extra` to a log call.
    """
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class Lines(logging.StreamHandler[TextIO]):
    """
    Writes what it can: a closed pipe or a full disk never ends the program.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """
        Write it, above the line of progress if there is one.
        """
        try:
            status_line.write_above(self.stream, self.format(record) + self.terminator)
            self.flush()
        except Exception:  # noqa: BLE001 - as in logging itself: handleError decides
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """
        Name the logger of a line that cannot be formatted; logging itself would print all of it, secrets too.
        """
        kind = sys.exc_info()[0]
        if kind is None or issubclass(kind, OSError):
            return
        try:
            self.stream.write(f"a log line of {record.name} cannot be shown: {kind.__name__}\n")
        except (OSError, ValueError):
            return


class RateLimit(logging.Filter):
    """
    Lets a library's repeated line through once in ten minutes; our own loggers log a state once until it changes.
    """

    PAUSE_SECONDS = 600.0

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """
        Whether it is logged now.
        """
        if record.name.partition(".")[0] in OURS:
            return True
        what = (record.name, str(record.msg))
        if 0 <= record.created - self._last.get(what, float("-inf")) < self.PAUSE_SECONDS:
            return False
        self._last = {**dict(list(self._last.items())[-255:]), what: record.created}
        return True


class Human(logging.Formatter):
    """
    `2026-03-01T12:00:01Z WARNING commit postponed  action=postpone table=events`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """
        One line, and the traceback if there is one.
        """
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        fields = " ".join(f"{key}={_word(value)}" for key, value in scrubbed(extras(record)).items())
        line = f"{at} {level}{record.getMessage()}  {fields}".rstrip()
        return redacted(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


def _word(value: Any) -> str:
    text = str(value)
    is_plain = text and text.isprintable() and not any(char.isspace() or char == '"' for char in text)
    return text if is_plain else json.dumps(text)


class JsonLines(logging.Formatter):
    """
    One JSON object a line: time, level, logger, message, and the extra fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        """
        One line.
        """
        fixed = {"time": stamp(datetime.fromtimestamp(record.created, UTC)), "level": record.levelname.lower()}
        fixed |= {"logger": record.name, "message": redacted(record.getMessage())}
        if record.exc_info:
            fixed["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps({**scrubbed(extras(record)), **fixed})


def fill_standard_streams() -> None:
    """
    Opens the standard streams that were closed when the process began: else the next file, maybe a catalog, gets that
    number, and a library's output on stderr is written into it. A character that stdout does not have is an escape.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it


def catch_defects() -> None:
    """
    Logs (or prints, while no log is set up) every uncaught error of any thread without its secrets.
    """
    sys.excepthook = _defect
    threading.excepthook = lambda args: _defect(args.exc_type, args.exc_value, args.exc_traceback)


def _defect(kind: type[BaseException], exc: BaseException | None, trace: TracebackType | None) -> None:
    if exc is None or issubclass(kind, SystemExit):
        return
    if any(isinstance(handler, Lines) for handler in logging.getLogger().handlers):
        about = {"action": "defect", "cause": f"{kind.__name__}: {exc}"}
        logging.getLogger("bookkeeper").critical("unexpected error", exc_info=(kind, exc, trace), extra=about)
        return
    try:
        sys.stderr.write(redacted("".join(traceback.format_exception(kind, exc, trace))))
    except OSError:
        return
