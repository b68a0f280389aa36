"""The newest warnings, for people who look at the page and not at the log."""

import logging
from collections import deque
from typing import Any, Final

from rillnode.node.logs import JsonFormatter

WARNINGS_MAX: Final = 50


class RecentWarnings(logging.Handler):
    """Keeps the newest records of rillnode's loggers from level warning on.

    Loggers belong to the process: nodes that share one see each other's warnings.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: deque[dict[str, Any]] = deque(maxlen=WARNINGS_MAX)
        self._formatter = JsonFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record as the log would show it."""
        self._records.append(self._formatter.document(record))
        if logging.lastResort is not None and self._hides_last_resort():
            logging.lastResort.handle(record)

    def start(self) -> None:
        """Begin to listen."""
        logging.getLogger("rillnode").addHandler(self)

    def stop(self) -> None:
        """Listen no more."""
        logging.getLogger("rillnode").removeHandler(self)

    def _hides_last_resort(self) -> bool:
        """Whether Python itself would have written a record, were it not for such handlers.

        Of several, the first speaks for all.
        """
        handlers = [*logging.getLogger("rillnode").handlers, *logging.getLogger().handlers]
        return handlers[:1] == [self] and all(isinstance(one, RecentWarnings) for one in handlers)

    def document(self) -> dict[str, Any]:
        """The records, the newest first."""
        return {"warnings": list(reversed(self._records)), "kept_max": WARNINGS_MAX}
