"""Shares events, key store and signed messages between both ends of a key exchange."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.encryption import GroupKey
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import (
    GroupKeyReset,
    KeyContent,
    decode_key_content,
    encode_key_content,
    key_stream_of,
    types_of,
)
from rillnode.codecs.streamr.limits import STREAMR_KEYS_MAX
from rillnode.codecs.streamr.signing import Verdict, sign_message, verify_message
from rillnode.codecs.streamr.stream_message import (
    EncryptionType,
    Layout,
    MessageId,
    MessageType,
    StreamMessage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Send this signed message to its stream."""

    message: StreamMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysLearned:
    """A publisher has told keys; keep them where they outlive the process."""

    publisher_id: str
    stream_id: str
    keys: tuple[GroupKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysMissing:
    """A publisher's keys cannot be had; messages under them are dropped for a while.

    Attributes:
        code: the publisher's own, or `key.unanswered`.
    """

    publisher_id: str
    stream_id: str
    group_key_ids: tuple[str, ...]
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A message in clear.

    Attributes:
        message: as it came.
        content: its JSON text, decrypted where it was encrypted.
    """

    message: StreamMessage
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A message that nothing could be made of; the code is a CodecError's, or `key.*`."""

    message: StreamMessage
    code: str
    text: str


KeyEvent = Publish | KeysLearned | KeysMissing | Opened | Dropped


class KeyStore:
    """Group keys by publisher and id, so that no publisher can replace another's.

    Publishers are compared without case. Beyond `keys_max` the longest unused key is forgotten.
    """

    __slots__ = ("_counts", "_keys", "_keys_max")

    def __init__(self, *, keys_max: int = STREAMR_KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._keys: OrderedDict[tuple[str, str], GroupKey] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def add(self, publisher_id: str, key: GroupKey) -> None:
        """Keep a key; it replaces one of the same publisher and id."""
        publisher_id = publisher_id.lower()
        name = (publisher_id, key.id)
        if name not in self._keys:
            self._counts[publisher_id] += 1
        self._keys[name] = key
        self._keys.move_to_end(name)
        if len(self._keys) > self._keys_max:
            (forgotten, _), _ = self._keys.popitem(last=False)
            self._counts[forgotten] -= 1
            if not self._counts[forgotten]:
                del self._counts[forgotten]

    def get(self, publisher_id: str, key_id: str) -> GroupKey | None:
        """Find a key."""
        name = (publisher_id.lower(), key_id)
        key = self._keys.get(name)
        if key is not None:
            self._keys.move_to_end(name)
        return key

    def __contains__(self, publisher_id: str) -> bool:
        """Whether any key of the publisher is known."""
        return publisher_id.lower() in self._counts

    def __iter__(self) -> Iterator[tuple[str, GroupKey]]:
        """All keys with their publishers, the longest unused first."""
        return ((publisher_id, key) for (publisher_id, _), key in self._keys.items())

    def __len__(self) -> int:
        return len(self._keys)


class KeyMessageWriter:
    """Writes the key messages of one address, in one chain.

    They name no predecessor: readers of different key streams see different parts of the chain.

    Args:
        key: of the address that writes.
        chain_id: of the messages, unlike that of any other writer of the address.
    """

    __slots__ = ("_chain_id", "_key", "_last")

    def __init__(self, key: EthereumKey, chain_id: str) -> None:
        self._key = key
        self._chain_id = chain_id
        self._last = (0, -1)

    def write(self, recipient: str, content: KeyContent, now_ms: int) -> Publish:
        """Sign a message to the recipient's key stream."""
        is_reset = isinstance(content, GroupKeyReset)
        message_type, encryption_type = types_of(content)
        message = StreamMessage(
            id=self._next_id(key_stream_of(recipient), 0, now_ms),
            content=encode_key_content(content),
            message_type=message_type,
            encryption_type=encryption_type,
            layout=Layout.SPECIFICATION if is_reset else Layout.RELEASED,
        )
        return Publish(message=sign_message(message, self._key))

    def write_rotation(
        self, stream_id: str, partition: int, encrypted: str, key_id: str, now_ms: int
    ) -> Publish:
        """Sign a rotation, whose content is encrypted under the key `key_id`, to its stream."""
        message = StreamMessage(
            id=self._next_id(stream_id, partition, now_ms),
            content=encrypted,
            message_type=int(MessageType.GROUP_KEY_ROTATE),
            encryption_type=int(EncryptionType.AES),
            group_key_id=key_id,
            layout=Layout.SPECIFICATION,
        )
        return Publish(message=sign_message(message, self._key))

    def _next_id(self, stream_id: str, partition: int, now_ms: int) -> MessageId:
        timestamp, sequence = self._last
        self._last = (now_ms, 0) if now_ms > timestamp else (timestamp, sequence + 1)
        publisher_id = self._key.address.lower()
        return MessageId(stream_id, partition, *self._last, publisher_id, self._chain_id)


def read_key_message(message: StreamMessage, address: str) -> KeyContent:
    """Read a message on the key stream of `address`, once its signature is found good.

    Raises:
        CodecError: `key.stream`, it is on another stream; `key.signature`, its publisher has not
            signed it; those of `decode_key_content`.
    """
    if (message.id.stream_id, message.id.partition) != (key_stream_of(address), 0):
        raise CodecError("key.stream", "the message is not on one's own key stream")
    verdict = verify_message(message)
    if verdict is not Verdict.VALID:
        raise CodecError("key.signature", f"a key message is refused: {verdict.value}")
    return decode_key_content(message.message_type, message.content)
