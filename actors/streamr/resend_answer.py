"""A resend as a client of the WebSocket sees it: Resending, its messages, Resent; or NoResend."""

from collections.abc import Sequence

from rillnode.actors.streamr.outlet import Outlet
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.control_messages import (
    ControlMessage,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendRequest,
    ResendResponseNoResend,
    ResendResponseResending,
    ResendResponseResent,
    UnicastMessage,
)
from rillnode.codecs.streamr.stream_message import StreamMessage

AnyResendRequest = ResendLastRequest | ResendFromRequest | ResendRangeRequest | ResendRequest


class ResendAnswer:
    """A ResendSink that writes to an outlet.

    Resending is written with the first message and not before: clients take a Resent without a
    message in between for an error.
    """

    __slots__ = ("_begun", "_outlet", "_request")

    def __init__(self, outlet: Outlet, request: AnyResendRequest) -> None:
        self._outlet = outlet
        self._request = request
        self._begun = False

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._outlet.buffered_bytes

    def resent(self, messages: Sequence[StreamMessage]) -> None:
        """Write messages as unicasts; those that the client's versions cannot express stay out."""
        texts = [text for message in messages if (text := self._encode(message)) is not None]
        if not texts:
            return
        if not self._begun:
            self._begun = True
            self._outlet.send(self._response(ResendResponseResending))
        self._outlet.link.send(texts)

    def finished(self, error: RequestError | None) -> None:
        """Write how it ended."""
        if error is not None:
            self._outlet.refuse(error, self._request.request_id)
        elif self._begun:
            self._outlet.send(self._response(ResendResponseResent))
        else:
            self._outlet.send(self._response(ResendResponseNoResend))

    def _encode(self, message: StreamMessage) -> bytes | None:
        dialect = self._outlet.dialect
        return dialect.encode_carrier(UnicastMessage, message, self._request.request_id)

    def _response(
        self,
        kind: type[ResendResponseResending]
        | type[ResendResponseResent]
        | type[ResendResponseNoResend],
    ) -> ControlMessage:
        request = self._request
        return kind(
            stream_id=request.stream_id,
            partition=request.partition,
            request_id=request.request_id,
            layout=request.layout,
        )
