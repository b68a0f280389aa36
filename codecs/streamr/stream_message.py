"""Streamr's message layer: the message itself, in any version and layout."""

from enum import Enum, IntEnum
from typing import NamedTuple

from msgspec import Struct


class MessageType(IntEnum):
    """The purpose of a message. Two names of one number are told apart by the message's layout."""

    MESSAGE = 27
    GROUP_KEY_REQUEST = 28
    GROUP_KEY_RESPONSE = 29
    GROUP_KEY_ANNOUNCE = 30
    GROUP_KEY_RESET = 30
    GROUP_KEY_ERROR_RESPONSE = 31
    GROUP_KEY_ROTATE = 32


class ContentType(IntEnum):
    """The kind of a message's content, once it is decrypted."""

    JSON = 0


class EncryptionType(IntEnum):
    """The encryption of a message's content; the last only in version 31."""

    NONE = 0
    RSA = 1
    AES = 2
    NEW_KEY_AND_AES = 3


class SignatureType(IntEnum):
    """The scheme of a message's signature."""

    NONE = 0
    ETH_LEGACY = 1
    ETH = 2


class Layout(Enum):
    """The origin of an array's elements: released software, or a specification's own text.

    What the specifications of versions 1/30 and 2/32 describe was released in other forms; both
    are read, and who writes one of them is answered in it.
    """

    RELEASED = "released"
    SPECIFICATION = "specification"


class MessageId(NamedTuple):
    """Names one message. Times are milliseconds since 1970.

    `publisher_id` keeps the case it came in: it is compared without case, but sent as it is.
    Versions 28 and 29 and the specification's 30 have no chains: `chain_id` is empty.

    Attributes:
        stream_id: the stream's id.
        partition: the stream's partition.
        timestamp: when its publisher has made it.
        sequence: tells it from others of the same millisecond.
        publisher_id: the publisher's address.
        chain_id: names the publisher's chain of messages.
    """

    stream_id: str
    partition: int
    timestamp: int
    sequence: int
    publisher_id: str
    chain_id: str


class MessageRef(NamedTuple):
    """Names a message within its chain, or a bound of a resend.

    Without a sequence, a lower bound is the first of its millisecond and an upper one the last.
    """

    timestamp: int
    sequence: int | None


class StreamMessage(Struct, frozen=True, gc=False, kw_only=True):
    """One message of a stream. `msgspec.structs.replace` makes a changed copy.

    A Struct because it is made several times faster than a frozen dataclass. Nothing is checked
    here: `decode_message` has done so, and `encode_message` refuses what it cannot express.

    Attributes:
        previous: the message before it in its chain, where the publisher told.
        message_type: a MessageType.
        content_type: a ContentType.
        encryption_type: an EncryptionType.
        group_key_id: names the key that encrypts the content; only version 32 tells it.
        content: exactly the text that was signed; encrypted, it is hexadecimal.
        new_group_key: exactly the JSON text `[id, encrypted key]` that was signed; version 32.
        signature_type: a SignatureType.
        version: the message layer's version it came in, 28 to 32.
        layout: the layout it came in.
        ttl: seconds to live; versions 28, 29 and the specification's 30.
        offset: position in its stream that an older node has given; versions 28 and 29.
        previous_offset: that of the message before it, where there was one.
    """

    id: MessageId
    content: str
    previous: MessageRef | None = None
    message_type: int = MessageType.MESSAGE
    content_type: int = ContentType.JSON
    encryption_type: int = EncryptionType.NONE
    group_key_id: str | None = None
    new_group_key: str | None = None
    signature_type: int = SignatureType.NONE
    signature: str | None = None
    version: int = 32
    layout: Layout = Layout.RELEASED
    ttl: int | None = None
    offset: int | None = None
    previous_offset: int | None = None
