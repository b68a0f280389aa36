"""The way to one client: what actors have for it, in the versions of its connection."""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from rillnode.actors.ports import FramedLink
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.streamr.control import encode_control
from rillnode.codecs.streamr.control_messages import ControlMessage, ErrorResponse
from rillnode.codecs.streamr.stream_message import Layout

logger = logging.getLogger("rillnode.actors.streamr.outlet")


class Dialect(NamedTuple):
    """The versions that a connection has asked for, and whose layout its client writes."""

    control_version: int
    message_version: int
    layout: Layout = Layout.RELEASED


class Outlet:
    """One connection's link; several actors write to it, each whole messages.

    Attributes:
        link: the link, for who sends the same frame to many.
    """

    __slots__ = ("control_version", "link", "message_version")

    def __init__(self, link: FramedLink, control_version: int, message_version: int) -> None:
        self.link = link
        self.control_version = control_version
        self.message_version = message_version

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self.link.buffered_bytes

    def dialect(self, layout: Layout) -> Dialect:
        """What a message must be encoded in for this connection."""
        return Dialect(self.control_version, self.message_version, layout)

    def send(self, *messages: ControlMessage) -> None:
        """Write messages, in order, as one write."""
        self.send_all(messages)

    def refuse(self, error: RequestError, request_id: str | None, layout: Layout) -> None:
        """Answer a request by why it was not done."""
        self.send(
            ErrorResponse(
                error_message=error.text,
                error_code=error.code,
                request_id=request_id,
                layout=layout,
            )
        )

    def send_all(self, messages: Iterable[ControlMessage]) -> None:
        """Write messages, in order; those that the versions cannot express are left out."""
        texts: list[bytes] = []
        for message in messages:
            text = encode(message, self.control_version, self.message_version)
            if text is not None:
                texts.append(text)
        if texts:
            self.link.send(texts)


def encode(message: ControlMessage, control_version: int, message_version: int) -> bytes | None:
    """Encode a message, or find that these versions have no form for it."""
    try:
        return encode_control(message, control_version, message_version).encode()
    except CodecError as error:
        logger.info("inexpressible", extra={"code": error.code, "version": message_version})
        return None
