"""A sink of resends, for tests."""

from collections.abc import Sequence

from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.stream_message import StreamMessage


class Sink:
    """Takes all, or as much as it is let."""

    def __init__(self) -> None:
        self.buffered_bytes = 0
        self.messages: list[StreamMessage] = []
        self.end: list[RequestError | None] = []

    def resent(self, messages: Sequence[StreamMessage]) -> None:
        self.messages += messages

    def finished(self, error: RequestError | None) -> None:
        self.end.append(error)
