"""Keeps what a node knows of all streams without its store: names and permissions.

Kept for streams that have grants or a name of their own; 100,000 of them take about 60 MB.
"""

from rillnode.actors.core.access import Access
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.log import StreamRecord


class Catalogue:
    """Follows the records of streams. All calls on the loop's thread."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._named: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}

    def tell(self, change: StreamRecord | StreamRemoved) -> None:
        """Take over a record as it is now, or that a stream is no more."""
        if isinstance(change, StreamRemoved):
            self._set(change.record.name, None)
            self._access.set_stream(change.record.name, {})
        else:
            self._set(change.name, change.attributes.get("name"))
            self._access.set_stream(change.name, change.grants)

    def named(self, display_name: str) -> set[str]:
        """The ids of streams that people call so; the stream whose id it is may be another."""
        return {*self._named.get(display_name, ()), display_name}

    def _set(self, stream: str, display_name: str | None) -> None:
        known = self._names.pop(stream, None)
        if known is not None:
            others = self._named[known]
            others.discard(stream)
            if not others:
                del self._named[known]
        if display_name is not None:
            self._names[stream] = display_name
            self._named.setdefault(display_name, set()).add(stream)
