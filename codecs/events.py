"""Log lines of events, which say what happened under any formatter.

    logger = event_logger("rillnode.actors.log")
    logger.warning("store_repaired", extra={"attempts": 3})

A line is an event's name and its details. The details are attributes of the record, for formatters
that write them in their own way (`rillnode.node.logs`), and they are part of the record's text, for
all others: with `logging.basicConfig()` the line above reads `store_repaired attempts=3`. From
level warning on the text ends with what to do, where something can be done. It is made only when a
handler asks for it.

Loggers are named `rillnode.<layer>.<module>`. Payloads and keys are never logged; should bytes come
here all the same, only their number is written.
"""

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from rillnode.codecs.next_steps import step_after

_PLAIN: Final = re.compile(r'[^\s"=\\]+')
_KEY_HEX: Final = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")


class Event(str):
    """An event's name, to which it is equal; `str()` of it is the whole text.

    Attributes:
        details: what `extra` has.
        level: the record's.
    """

    details: Mapping[str, object]
    level: int

    def __new__(cls, name: str, details: Mapping[str, object], level: int) -> "Event":
        """Name an event."""
        event = super().__new__(cls, name)
        event.details, event.level = details, level
        return event

    def __str__(self) -> str:
        text = event_text(self.name, self.details)
        step = step_after(self.name, self.details) if self.level >= logging.WARNING else ""
        return f"{text}; next: {step}" if step else text

    @property
    def name(self) -> str:
        """The name alone."""
        return self[:]


class EventLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs events by name: the details are in `extra`."""

    def log(
        self,
        level: int,
        msg: object,
        *args: object,
        stacklevel: int = 1,
        extra: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log an event of the name `msg`; `args` are formatted into it, as in `logging`."""
        if self.logger.isEnabledFor(level):
            event = Event(str(msg) % args if args else str(msg), extra or {}, level)
            self.logger.log(level, event, stacklevel=stacklevel + 1, extra=extra, **kwargs)


def event_logger(name: str) -> EventLogger:
    """Make what logs events to `logging.getLogger(name)`."""
    return EventLogger(logging.getLogger(name))


def event_text(name: str, details: Mapping[str, object]) -> str:
    """One line, `name key=value`; keys of 32 bytes are shortened to 8 digits."""
    if not name.isprintable():
        name = json.dumps(name)
    pairs = [f"{key}={_quoted(text_of(value))}" for key, value in details.items()]
    return _KEY_HEX.sub(r"\1", " ".join((name, *pairs)))


def text_of(value: object) -> str:
    """A detail as text; of bytes only their number."""
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text)
