"""The way to one client: what actors have for it, in the versions and layout of its connection."""

from typing import Final, NamedTuple, Protocol

from rillnode.actors.ports import FramedLink
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.control import encode_control
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    RequestId,
    UnicastMessage,
)
from rillnode.codecs.streamr.message import TWO_LAYOUTS
from rillnode.codecs.streamr.stream_message import Layout, StreamMessage

logger = event_logger("rillnode.actors.streamr.outlet")

RELEASED_ONLY: Final = (Layout.RELEASED,)
EITHER_LAYOUT: Final = (Layout.RELEASED, Layout.SPECIFICATION)
"""For whom nothing is known of: the released layout, and the other for what only that can tell."""


class Dialect(NamedTuple):
    """A client's dialect: its versions, and the layouts, the preferred first."""

    control_version: int
    message_version: int
    layouts: tuple[Layout, ...] = EITHER_LAYOUT

    def encode_carrier(
        self,
        kind: type[BroadcastMessage] | type[UnicastMessage],
        message: StreamMessage,
        request_id: RequestId | None = None,
    ) -> bytes | None:
        """A message on its way to the client; None where no form that it reads can carry it."""
        reason = ""
        for layout in self.layouts:
            carrier = kind(message=message, request_id=request_id, layout=layout)
            try:
                return encode_control(carrier, self.control_version, self.message_version).encode()
            except CodecError as error:
                reason = error.code
        logger.info("inexpressible", extra={"code": reason, "version": self.message_version})
        return None


class OutletHolder(Protocol):
    """Keeps the outlets that a partition's messages go to, by their dialects."""

    @property
    def partition(self) -> tuple[str, int]:
        """Stream and partition."""
        ...

    def remove(self, outlet: "Outlet", /) -> None:
        """Write to an outlet no more."""
        ...

    def dialect_changed(self, outlet: "Outlet", /) -> None:
        """An outlet's dialect is another now."""
        ...


class Outlet:
    """One connection's link; several actors write to it, each whole messages.

    Which layout the client reads is what it writes, from the first message on that tells; until
    then `layouts` counts.

    Args:
        link: the link.
        control_version: of what it is sent.
        message_version: likewise.
        layouts: what it has said when it connected; None: nothing, so that what it writes tells.
        survives_errors: as the attribute.

    Attributes:
        link: the link, for who sends the same frame to many.
        dialect: what a message must be encoded in.
        holders: who writes to it.
        survives_errors: whether the client goes on after an error that it has not asked for;
            released clients up to 4 disconnect at any.
    """

    __slots__ = (
        "_has_published", "_is_told", "dialect", "holders", "link", "survives_errors",
    )  # fmt: skip

    def __init__(
        self,
        link: FramedLink,
        control_version: int,
        message_version: int,
        layouts: tuple[Layout, ...] | None = None,
        *,
        survives_errors: bool = True,
    ) -> None:
        self.link = link
        self.survives_errors = survives_errors
        self.dialect = Dialect(control_version, message_version, layouts or EITHER_LAYOUT)
        self.holders: set[OutletHolder] = set()
        self._is_told = layouts is not None
        self._has_published = False

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self.link.buffered_bytes

    def heard(self, request: ControlMessage) -> None:
        """Learn the layout from what the client writes.

        A message of its own tells most; before one has come, a request in the specification's form.
        """
        if self._is_told:
            return
        layout = request.layout
        if isinstance(request, PublishRequest) and request.message.version in TWO_LAYOUTS:
            layout = request.message.layout
            self._has_published = True
        elif self._has_published or layout is Layout.RELEASED:
            return
        if self.dialect.layouts != (layout,):
            self.dialect = self.dialect._replace(layouts=(layout,))
            for holder in self.holders:
                holder.dialect_changed(self)

    def leave(self, stream_id: str, partition: int) -> None:
        """Be written to no more of what comes to a partition; harmless where it is not."""
        for holder in [one for one in self.holders if one.partition == (stream_id, partition)]:
            holder.remove(self)

    def send(self, *responses: ControlMessage) -> None:
        """Write responses, in order, as one write."""
        control_version, message_version, _ = self.dialect
        texts = [encode_control(one, control_version, message_version) for one in responses]
        self.link.send([text.encode() for text in texts])

    def refuse(self, error: RequestError, request_id: RequestId | None) -> None:
        """Answer a request by why it was not done."""
        self.send(
            ErrorResponse(
                error_message=error.text,
                error_code=error.code,
                request_id=request_id,
            )
        )
