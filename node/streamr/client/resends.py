"""Resends: stored messages, read over a WebSocket of their own.

So a long resend holds up nothing else, and is read no faster than it is used.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from rillnode.codecs.errors import RequestError, TransportError
from rillnode.codecs.streamr.control_messages import (
    ErrorResponse,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendResponseNoResend,
    ResendResponseResent,
    UnicastMessage,
)
from rillnode.codecs.streamr.stream_message import MessageRef, StreamMessage
from rillnode.node.streamr.client.login import Login
from rillnode.node.streamr.client.wire import OpenWire, refusal_of

ANSWER_SECONDS: Final = 60.0
"""How long a server may send nothing while a resend is under way."""

_AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"
_REQUEST_ID: Final = "resend"


@dataclass(frozen=True, slots=True)
class Last:
    """The newest messages, oldest first.

    Attributes:
        count: how many; servers have an upper limit of 10,000.
    """

    count: int


@dataclass(frozen=True, slots=True)
class From:
    """All messages from a time on, oldest first.

    Attributes:
        timestamp: milliseconds since 1970, included.
        sequence: the first message of that millisecond; None: all of them.
        publisher: only this one's.
    """

    timestamp: int
    sequence: int | None = None
    publisher: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """All messages between two times, oldest first; both ends are included.

    Attributes:
        start: timestamp in milliseconds since 1970.
        end: likewise.
        start_sequence: the first message of its millisecond; None: all of them.
        end_sequence: the last one; None: all.
        publisher: only this one's.
        chain_id: only this chain's, of that publisher.
    """

    start: int
    end: int
    start_sequence: int | None = None
    end_sequence: int | None = None
    publisher: str | None = None
    chain_id: str | None = None


Resend = Last | From | Range


async def resend(
    open_wire: OpenWire, login: Login, stream_id: str, partition: int, what: Resend
) -> AsyncGenerator[StreamMessage]:
    """Read stored messages, in the server's order.

    Raises:
        RequestError: the server refuses; the code is the server's.
        TransportError: it is not reached, or the connection broke on the way.
    """
    wire = await open_wire()
    try:
        renewed = False
        await wire.send(_request(stream_id, partition, what, await login.token()))
        while True:
            async with asyncio.timeout(ANSWER_SECONDS):
                message = await wire.receive()
            match message:
                case UnicastMessage(request_id=request_id) if request_id == _REQUEST_ID:
                    yield message.message
                case ResendResponseResent() | ResendResponseNoResend():
                    return
                case ErrorResponse(error_code=code) if code == _AUTHENTICATION_FAILED:
                    token = await login.token(True)
                    if renewed or token is None:
                        raise refusal_of(message)
                    renewed = True
                    await wire.send(_request(stream_id, partition, what, token))
                case ErrorResponse():
                    raise refusal_of(message)
                case _:
                    pass  # the word that messages follow
    except TimeoutError:
        text = f"the server has sent nothing for {ANSWER_SECONDS:g} s"
        raise TransportError("request.timeout", text) from None
    finally:
        await wire.close()


def _request(
    stream_id: str, partition: int, what: Resend, token: str | None
) -> ResendLastRequest | ResendFromRequest | ResendRangeRequest:
    match what:
        case Last(count=count):
            if count < 0:
                raise RequestError("resend.count", f"{count} messages cannot be resent")
            return ResendLastRequest(
                stream_id=stream_id,
                partition=partition,
                number_last=count,
                session_token=token,
                request_id=_REQUEST_ID,
            )
        case From():
            return ResendFromRequest(
                stream_id=stream_id,
                partition=partition,
                from_ref=MessageRef(what.timestamp, what.sequence),
                publisher_id=what.publisher,
                session_token=token,
                request_id=_REQUEST_ID,
            )
        case Range():
            return ResendRangeRequest(
                stream_id=stream_id,
                partition=partition,
                from_ref=MessageRef(what.start, what.start_sequence),
                to_ref=MessageRef(what.end, what.end_sequence),
                publisher_id=what.publisher,
                chain_id=what.chain_id,
                session_token=token,
                request_id=_REQUEST_ID,
            )
