"""Sends resends: to a neighbour as broadcasts, or to whoever asked as an answer."""

from collections.abc import Callable, Sequence

from rillnode.actors.core.delivery import Origin
from rillnode.actors.overlay.dialect import Dialect
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ErrorResponse,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendResponseNoResend,
    ResendResponseResending,
    ResendResponseResent,
    UnicastMessage,
)
from rillnode.codecs.streamr.stream_message import StreamMessage

Send = Callable[[list[bytes]], None]


class Push:
    """Brings a neighbour up to date unasked: what it knows is a duplicate to it."""

    def __init__(self, origin: Origin, dialect: Dialect, send: Send) -> None:
        self.origin = origin
        self._dialect = dialect
        self._send = send

    def resent(self, messages: Sequence[StreamMessage]) -> None:
        """Send messages as broadcasts."""
        encode = self._dialect.encode_control
        self._send([encode(BroadcastMessage(message=one, request_id="")) for one in messages])

    def finished(self, ok: bool) -> None:
        """Nothing follows."""


class Answer:
    """Answers a request to resend: Resending, its messages, Resent; or NoResend, or an error."""

    def __init__(
        self,
        request: ResendFromRequest | ResendRangeRequest | ResendLastRequest,
        origin: Origin,
        dialect: Dialect,
        send: Send,
    ) -> None:
        self._request = request
        self.origin = origin
        self._dialect = dialect
        self._send = send
        self._begun = False

    def resent(self, messages: Sequence[StreamMessage]) -> None:
        """Send messages as unicasts."""
        encode, request_id = self._dialect.encode_control, self._request.request_id
        frames = [encode(UnicastMessage(message=one, request_id=request_id)) for one in messages]
        if not self._begun:
            self._begun = True
            frames.insert(0, encode(self._response(ResendResponseResending)))
        self._send(frames)

    def finished(self, ok: bool) -> None:
        """Say how it ended."""
        if not ok:
            self.refuse("RESEND_FAILED", "The log cannot be read now")
        elif self._begun:
            self._send([self._dialect.encode_control(self._response(ResendResponseResent))])
        else:
            self._send([self._dialect.encode_control(self._response(ResendResponseNoResend))])

    def refuse(self, code: str, text: str) -> None:
        """Say that it is not done."""
        error = ErrorResponse(
            error_message=text, error_code=code, request_id=self._request.request_id
        )
        self._send([self._dialect.encode_control(error)])

    def _response(
        self,
        kind: type[ResendResponseResending]
        | type[ResendResponseResent]
        | type[ResendResponseNoResend],
    ) -> ResendResponseResending | ResendResponseResent | ResendResponseNoResend:
        request = self._request
        return kind(
            stream_id=request.stream_id,
            partition=request.partition,
            request_id=request.request_id,
        )
