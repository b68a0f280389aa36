"""Log output of a node: one event per line (`codecs/events.py`), for people or as JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from rillnode.actors.core.links.tracing import TRACE
from rillnode.codecs.events import Event, event_text, text_of
from rillnode.node.config.tables import LogTable

TRACES: Final = "rillnode.trace."

logging.addLevelName(TRACE, "TRACE")

_STANDARD: Final = frozenset(
    (*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName")
)


class ConsoleFormatter(logging.Formatter):
    """`time level logger event key=value`; keys of 32 bytes are shortened to 8 digits."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line, and the lines of its exception."""
        event = event_text(_event(record), _fields(record))
        line = f"{_time(record)} {record.levelname.lower()} {record.name} {event}"
        return f"{line}\n{_exception(record)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line, its exception included."""
        return json.dumps(self.document(record), ensure_ascii=False)

    def document(self, record: logging.LogRecord) -> dict[str, object]:
        """One record, its exception included, as JSON can express it."""
        document: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        for key, value in _fields(record).items():
            document.setdefault(key, _json_value(value))
        if record.exc_info:
            document["exception"] = _exception(record)
        return document


def configure_logs(table: LogTable, stream: TextIO) -> logging.Handler:
    """Send the logs of the process to `stream`; only the command line does so.

    Other libraries are heard from level warning on.

    Returns:
        The handler, which replaces those of the root logger.
    """
    people = table.format == "console" or (table.format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ConsoleFormatter() if people else JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("rillnode").setLevel(table.level.upper())
    for layer, level in table.levels.items():
        logging.getLogger(f"rillnode.{layer}").setLevel(level.upper())
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(TRACES):
            logging.getLogger(name).setLevel(logging.NOTSET)
    for protocol in table.trace:
        logging.getLogger(f"{TRACES}{protocol}").setLevel(TRACE)
    return handler


def _event(record: logging.LogRecord) -> str:
    """The name of an event; of what others have logged, the text."""
    return record.msg.name if isinstance(record.msg, Event) else record.getMessage()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _exception(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


def _json_value(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else text_of(value)
