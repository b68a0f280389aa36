"""Streamr's control layer: its messages, in any version.

A class has what any version tells of its message. What a version has no place for is None, or its
default, after decoding, and left out by encoding. `layout` says whose form a message has come in;
an answer takes it over from the request that it answers.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX
from rillnode.codecs.streamr.stream_message import Layout, MessageRef, StreamMessage

RequestId = str | Annotated[int, Meta(ge=0, le=STREAMR_INTEGER_MAX)]
"""Named by the asker, and given back as it came; a number only in version 1."""


class BroadcastMessage(Struct, frozen=True, gc=False, kw_only=True):
    """A message for all subscribers of its stream's partition.

    Attributes:
        message_text: exactly the text that `message` was decoded from.
    """

    type: ClassVar[int] = 0
    message: StreamMessage
    message_text: bytes | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class UnicastMessage(Struct, frozen=True, gc=False, kw_only=True):
    """A message that a resend brings; in order, between Resending and Resent."""

    type: ClassVar[int] = 1
    message: StreamMessage
    message_text: bytes | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class SubscribeResponse(Struct, frozen=True, gc=False, kw_only=True):
    """Answers SubscribeRequest."""

    type: ClassVar[int] = 2
    stream_id: str
    partition: int
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class UnsubscribeResponse(Struct, frozen=True, gc=False, kw_only=True):
    """Answers UnsubscribeRequest."""

    type: ClassVar[int] = 3
    stream_id: str
    partition: int
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class ResendResponseResending(Struct, frozen=True, gc=False, kw_only=True):
    """Answers a request to resend: one or more UnicastMessages follow."""

    type: ClassVar[int] = 4
    stream_id: str
    partition: int
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class ResendResponseResent(Struct, frozen=True, gc=False, kw_only=True):
    """Ends the messages of a resend."""

    type: ClassVar[int] = 5
    stream_id: str
    partition: int
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class ResendResponseNoResend(Struct, frozen=True, gc=False, kw_only=True):
    """Answers a request to resend that nothing matches."""

    type: ClassVar[int] = 6
    stream_id: str
    partition: int
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class ErrorResponse(Struct, frozen=True, gc=False, kw_only=True):
    """Answers a request that was not done; `error_code` only in version 2."""

    type: ClassVar[int] = 7
    error_message: str
    error_code: str | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class PublishRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Publish a message; only errors are answered.

    Attributes:
        message_text: exactly the text that `message` was decoded from.
        api_key: a way to log in that only the specification's version 1 has.
    """

    type: ClassVar[int] = 8
    message: StreamMessage
    message_text: bytes | None = None
    session_token: str | None = None
    api_key: str | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class SubscribeRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Follow a stream's partition from the next message on."""

    type: ClassVar[int] = 9
    stream_id: str
    partition: int
    session_token: str | None = None
    api_key: str | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class UnsubscribeRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Follow a stream's partition no longer."""

    type: ClassVar[int] = 10
    stream_id: str
    partition: int
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class ResendLastRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Resend the newest `number_last` messages of a partition, oldest first."""

    type: ClassVar[int] = 11
    stream_id: str
    partition: int
    number_last: int
    session_token: str | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class ResendRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Resend by place in the log: all of it, its end, or what lies between two positions.

    Only the specification's version 1 has it; exactly one of the first three is set.

    Attributes:
        resend_all: everything, if true.
        resend_last: how many of the newest messages.
        resend_from: position of the first message.
        resend_to: position of the last message, where `resend_from` is not to go on to the end.
    """

    type: ClassVar[int] = 11
    stream_id: str
    partition: int
    resend_all: bool | None = None
    resend_last: int | None = None
    resend_from: int | None = None
    resend_to: int | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.SPECIFICATION


class ResendFromRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Resend all messages from a reference on, of all publishers or of one.

    `chain_id` has a place only in version 1, and released clients have written it only before 5.0.
    """

    type: ClassVar[int] = 12
    stream_id: str
    partition: int
    from_ref: MessageRef
    publisher_id: str | None = None
    chain_id: str | None = None
    session_token: str | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


class ResendRangeRequest(Struct, frozen=True, gc=False, kw_only=True):
    """Resend all messages between two references, both included, of all publishers or one chain."""

    type: ClassVar[int] = 13
    stream_id: str
    partition: int
    from_ref: MessageRef
    to_ref: MessageRef
    publisher_id: str | None = None
    chain_id: str | None = None
    session_token: str | None = None
    request_id: RequestId | None = None
    layout: Layout = Layout.RELEASED


Request = (
    PublishRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | ResendLastRequest
    | ResendRequest
    | ResendFromRequest
    | ResendRangeRequest
)

Response = (
    BroadcastMessage
    | UnicastMessage
    | SubscribeResponse
    | UnsubscribeResponse
    | ResendResponseResending
    | ResendResponseResent
    | ResendResponseNoResend
    | ErrorResponse
)

ControlMessage = Request | Response
