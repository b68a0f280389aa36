"""Numbers the results of answers and closes, and defines the error that ends a connection.

Clients turn these numbers back into errors and die of one that they do not know, so nothing else
is ever sent.

Source: nextgraph-rs 9ea23f60, engine/repo/src/errors.rs; seen from real clients.
"""

from enum import IntEnum
from typing import Final

from rillnode.codecs.errors import CodecError

NORMAL_CLOSE: Final = 1_000
"""WebSocket close code without an error."""


class ResultCode(IntEnum):
    """`result` of responses to clients' and external requests.

    0 to 2 are no errors: the answer, one of several answers, their end. 8 says that there are none.
    """

    OK = 0
    PARTIAL_CONTENT = 1
    END_OF_STREAM = 2
    FALSE = 3
    SEQUENCE_MISMATCH = 4
    FILE_ERROR = 5
    REPO_ALREADY_OPENED = 6
    NOT_FOUND = 7
    EMPTY_STREAM = 8
    STORAGE_ERROR = 9
    INVALID_REQUEST = 10
    INVALID_SIGNATURE = 11
    OTHER_ERROR = 12
    OVERLAY_MISMATCH = 13
    OVERLAY_NOT_FOUND = 14
    TOPIC_NOT_FOUND = 15
    ACCESS_DENIED = 16
    INVALID_HEADER = 17
    MALFORMED_BRANCH = 18
    BROKER_ERROR = 19
    PROTOCOL_ERROR = 20
    PEER_ALREADY_SUBSCRIBED = 21
    SUBSCRIPTION_NOT_FOUND = 22
    SESSION_NOT_FOUND = 23
    SESSION_DETACHED = 24
    OXI_GRAPH_ERROR = 25
    INVALID_NURI = 26
    INVALID_TARGET = 27
    EXPORT_WALLET_TIME_OUT = 28
    NET_ERROR = 29


class _Closing(IntEnum):
    @property
    def reason(self) -> str:
        """The name that goes with the close code: `NOT_FOUND` is "NotFound"."""
        return self.name.title().replace("_", "")


class ProtocolCode(_Closing):
    """`result` of AuthResult, AppResponse and AdminResponse, and close codes above 4000."""

    NO_ERROR = 0
    IO_ERROR = 1
    WS_ERROR = 2
    ACTOR_ERROR = 3
    INVALID_STATE = 4
    INVALID_SIGNATURE = 5
    SERIALIZATION_ERROR = 6
    ACCESS_DENIED = 7
    INVITATION_REQUIRED = 8
    BROKER_ERROR = 9
    NO_LOCAL_BROKER_FOUND = 10
    NOT_FOUND = 11
    MISSING_BLOCKS = 12
    OBJECT_PARSE_ERROR = 13
    INVALID_VALUE = 14
    ALREADY_EXISTS = 15
    REPO_ID_REQUIRED = 16
    INVALID_PUBLISHER_ADVERT = 17
    CONNECTION_ERROR = 18
    TIMEOUT = 19
    EXPIRED = 20
    PEER_ALREADY_CONNECTED = 21
    USER_NOT_CONNECTED = 22
    PEER_NOT_CONNECTED = 23
    OTHER_ERROR = 24
    NET_ERROR = 25
    STORAGE_ERROR = 26
    SERVER_ERROR = 27
    CLOSING = 28
    FSM_NOT_READY = 29
    MUST_BE_ENCRYPTED = 30
    NOISE_HANDSHAKE_FAILED = 31
    DECRYPTION_ERROR = 32
    ENCRYPTION_ERROR = 33
    WHERE_IS_THE_MAGIC = 34
    INVALID_NONCE = 35
    INVALID_MESSAGE = 36

    @property
    def close_code(self) -> int:
        """WebSocket close code: 1000 without an error."""
        return 4_000 + self if self else NORMAL_CLOSE


class NetCode(_Closing):
    """Close codes above 4949."""

    DIRECTION_ALREADY_SET = 1
    WS_ERROR = 2
    IO_ERROR = 3
    CONNECTION_ERROR = 4
    SERIALIZATION_ERROR = 5
    PROTOCOL_ERROR = 6
    ACCESS_DENIED = 7
    INTERNAL_ERROR = 8
    PEER_ALREADY_CONNECTED = 9
    CLOSING = 10

    @property
    def close_code(self) -> int:
        """WebSocket close code."""
        return 4_949 + self


def closing_code(close_code: int) -> ProtocolCode | NetCode | None:
    """What a peer's WebSocket close code says; None for any that is not NextGraph's."""
    if close_code == NORMAL_CLOSE:
        return ProtocolCode.NO_ERROR
    try:
        return ProtocolCode(close_code - 4_000)
    except ValueError:
        pass
    try:
        return NetCode(close_code - 4_949)
    except ValueError:
        return None


class NextGraphError(CodecError):
    """A peer's mistake that ends its connection.

    Attributes:
        closing: its `close_code` and `reason` are what to close with.
    """

    def __init__(self, closing: ProtocolCode | NetCode, text: str, *, offset: int = 0) -> None:
        super().__init__(f"nextgraph.{closing.name.lower()}", text, offset=offset)
        self.closing = closing
