"""The subscriber's side of key exchange: opens messages, and gets the keys that it lacks.

It does no I/O: messages of the subscribed streams and of the subscriber's key stream go in, events
come out, and the time is an argument, in milliseconds since 1970 of a clock that never goes back.

A message under an unknown key is locked up, and with it what follows in its chain, so that each
chain comes out in order.

Source: streamr-client 5.2.1, subscriber key exchange; streamr-specs a65e0f9, GroupKeyRequest.
"""

from collections import deque
from collections.abc import Sequence

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.encryption import (
    Entropy,
    GroupKey,
    RsaKey,
    decrypt_message,
    from_hex,
)
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import (
    EncryptedKey,
    GroupKeyAnnounce,
    GroupKeyErrorResponse,
    GroupKeyReset,
    GroupKeyResponse,
    GroupKeyRotate,
    decode_key_content,
    key_stream_of,
)
from rillnode.codecs.streamr.key_messages import (
    Dropped,
    KeyEvent,
    KeyMessageWriter,
    KeysLearned,
    KeysMissing,
    KeyStore,
    Opened,
    read_key_message,
)
from rillnode.codecs.streamr.key_requests import KeyName, KeyRequests
from rillnode.codecs.streamr.limits import (
    STREAMR_ANNOUNCED_KEYS_MAX,
    STREAMR_LOCKED_BYTES_MAX,
    STREAMR_LOCKED_MESSAGES_MAX,
)
from rillnode.codecs.streamr.signing import Verdict, verify_message
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageType, StreamMessage

Chain = tuple[str, int, str, str]
"""Stream, partition, publisher in lower case, chain id."""


class KeySubscriber:
    """Opens the messages of a subscriber's streams.

    Messages must have been verified before, as any reader does; whatever brings a key is verified
    here. At most `messages_max` messages and `bytes_max` characters are locked up; what comes
    then is dropped.

    Args:
        key: signs requests; answers come on the key stream of its address.
        rsa_key: publishers encrypt keys to it.
        store: the keys that are known; learned ones are added. A key that was agreed on for
            messages that name none, as before version 32, goes by its stream's id.
        chain_id: of the requests.
        entropy: makes request ids.
    """

    def __init__(
        self,
        key: EthereumKey,
        rsa_key: RsaKey,
        store: KeyStore,
        chain_id: str,
        entropy: Entropy,
        *,
        messages_max: int = STREAMR_LOCKED_MESSAGES_MAX,
        bytes_max: int = STREAMR_LOCKED_BYTES_MAX,
    ) -> None:
        self._address = key.address
        self._rsa_key = rsa_key
        self._store = store
        writer = KeyMessageWriter(key, chain_id)
        self._requests = KeyRequests(writer, rsa_key.public_pem, entropy)
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._locked: dict[Chain, deque[StreamMessage]] = {}
        self._locked_messages = 0
        self._locked_bytes = 0
        self._waiting: dict[KeyName, set[Chain]] = {}

    @property
    def key_stream(self) -> str:
        """Where answers arrive, on partition 0: subscribe to it before the first message."""
        return key_stream_of(self._address)

    @property
    def deadline_ms(self) -> int | None:
        """When `poll` has something to do; None while no key is missing."""
        return self._requests.deadline_ms

    @property
    def locked(self) -> int:
        """How many messages wait for a key, or behind one that does."""
        return self._locked_messages

    def receive(self, message: StreamMessage, now_ms: int) -> list[KeyEvent]:
        """Take a message of a subscribed stream; the messages of a chain come out in order."""
        chain = _chain_of(message)
        events = None if chain in self._locked else self._open(message, now_ms)
        if events is None:
            return self._lock(chain, message, now_ms)
        return self._follow(events, now_ms)

    def handle(self, message: StreamMessage, now_ms: int) -> list[KeyEvent]:
        """Take a message of the subscriber's own key stream.

        Keys are taken in response to a request, and unasked only from publishers of whom a key
        is known already. Takes some milliseconds for each key.
        """
        try:
            events = self._read(message)
        except CodecError as error:
            return [Dropped(message=message, code=error.code, text=error.text)]
        return self._follow(events, now_ms)

    def poll(self, now_ms: int) -> list[KeyEvent]:
        """Send the requests whose time has come, or give them up."""
        return self._follow(self._requests.poll(now_ms), now_ms)

    def _open(self, message: StreamMessage, now_ms: int) -> list[KeyEvent] | None:
        """What a message has to say, or None where it needs a key that may yet come."""
        if message.encryption_type == EncryptionType.NONE:
            if message.message_type != MessageType.MESSAGE:
                text = "a key message in clear, or on a stream of messages"
                return [Dropped(message=message, code="key.type", text=text)]
            return [Opened(message=message, content=message.content)]
        name = _key_name_of(message)
        key = self._store.get(*name)
        try:
            if key is not None:
                return self._decrypt(message, key)
            if message.group_key_id is None:
                raise CodecError("key.unknown", "the message names no key, and none was agreed on")
            if self._requests.is_given_up(name, now_ms):
                raise CodecError("key.missing", "its publisher has not given the key")
        except CodecError as error:
            return [Dropped(message=message, code=error.code, text=error.text)]
        return None

    def _decrypt(self, message: StreamMessage, key: GroupKey) -> list[KeyEvent]:
        stream_id, publisher_id = message.id.stream_id, message.id.publisher_id
        if message.message_type == MessageType.GROUP_KEY_ROTATE:
            _check_signature(message)
            text = decrypt_message(message, key).content
            rotation = decode_key_content(message.message_type, text)
            assert isinstance(rotation, GroupKeyRotate)
            following = GroupKey(rotation.group_key_id, from_hex(rotation.group_key))
            return self._learn(publisher_id, stream_id, [following])
        text, next_key = decrypt_message(message, key)
        opened = Opened(message=message, content=text)
        if next_key is None:
            return [opened]
        _check_signature(message)
        return [opened, *self._learn(publisher_id, stream_id, [next_key])]

    def _lock(self, chain: Chain, message: StreamMessage, now_ms: int) -> list[KeyEvent]:
        size = len(message.content)
        has_room = (
            self._locked_messages < self._messages_max
            and self._locked_bytes + size <= self._bytes_max
        )
        if not has_room or not self._await_key(chain, message, now_ms):
            text = "too much waits for keys already"
            return [Dropped(message=message, code="key.full", text=text)]
        self._locked.setdefault(chain, deque()).append(message)
        self._locked_messages += 1
        self._locked_bytes += size
        return []

    def _await_key(self, chain: Chain, message: StreamMessage, now_ms: int) -> bool:
        """Have the key of a locked message asked for; False where there is no room to."""
        name = _key_name_of(message)
        if message.encryption_type == EncryptionType.NONE or message.group_key_id is None:
            return True
        if self._store.get(*name) is None and not self._requests.is_given_up(name, now_ms):
            if not self._requests.ask(name, message.id.stream_id, now_ms):
                return False
            self._waiting.setdefault(name, set()).add(chain)
        return True

    def _follow(self, events: list[KeyEvent], now_ms: int) -> list[KeyEvent]:
        """Add what keys release that were learned or given up, until that is all."""
        for event in events:  # the list grows while it is read
            match event:
                case KeysLearned(publisher_id=publisher_id, keys=keys):
                    names = [(publisher_id, key.id) for key in keys]
                case KeysMissing(publisher_id=publisher_id, group_key_ids=key_ids):
                    names = [(publisher_id, key_id) for key_id in key_ids]
                case _:
                    continue
            for name in names:
                for chain in sorted(self._waiting.pop(name, ())):
                    events += self._release(chain, now_ms)
        return events

    def _release(self, chain: Chain, now_ms: int) -> list[KeyEvent]:
        """Open what is locked in a chain, up to a message whose key is still missing."""
        events: list[KeyEvent] = []
        queue = self._locked.get(chain, deque())
        while queue:
            opened = self._open(queue[0], now_ms)
            # The key that is missing now may have been known when the message was locked.
            if opened is None and self._await_key(chain, queue[0], now_ms):
                return events
            message = queue.popleft()
            self._locked_messages -= 1
            self._locked_bytes -= len(message.content)
            text = "too much waits for keys already"
            events += opened or [Dropped(message=message, code="key.full", text=text)]
        self._locked.pop(chain, None)
        return events

    def _read(self, message: StreamMessage) -> list[KeyEvent]:
        """What a message on the key stream brings; raises CodecError."""
        content = read_key_message(message, self._address)
        publisher_id = message.id.publisher_id
        match content:
            case GroupKeyResponse(stream_id=stream_id):
                asked = self._requests.asked_keys(publisher_id.lower(), content)
                return self._learn(publisher_id, stream_id, self._unwrap(asked))
            case GroupKeyErrorResponse():
                self._requests.refuse(publisher_id.lower(), content)
                return []
            case GroupKeyAnnounce(stream_id=stream_id, keys=keys):
                return self._take_unasked(publisher_id, stream_id, keys)
            case GroupKeyReset(stream_id=stream_id, group_key_id=key_id, group_key=text):
                return self._take_unasked(publisher_id, stream_id, (EncryptedKey(key_id, text),))
            case _:
                raise CodecError("key.type", "a subscriber is sent keys by id, or an error")

    def _take_unasked(
        self, publisher_id: str, stream_id: str, keys: tuple[EncryptedKey, ...]
    ) -> list[KeyEvent]:
        if publisher_id not in self._store:
            raise CodecError("key.unasked", "keys from a publisher that was not asked for any")
        if len(keys) > STREAMR_ANNOUNCED_KEYS_MAX:
            raise CodecError("codec.limit", f"more than {STREAMR_ANNOUNCED_KEYS_MAX} keys unasked")
        return self._learn(publisher_id, stream_id, self._unwrap(keys))

    def _unwrap(self, keys: Sequence[EncryptedKey]) -> list[GroupKey]:
        return [GroupKey(key.id, self._rsa_key.unwrap(key.text)) for key in keys]

    def _learn(self, publisher_id: str, stream_id: str, keys: list[GroupKey]) -> list[KeyEvent]:
        if not keys:
            return []
        publisher_id = publisher_id.lower()
        for key in keys:
            self._store.add(publisher_id, key)
        self._requests.learn(publisher_id, {key.id for key in keys})
        return [KeysLearned(publisher_id=publisher_id, stream_id=stream_id, keys=tuple(keys))]


def _chain_of(message: StreamMessage) -> Chain:
    name = message.id
    return name.stream_id, name.partition, name.publisher_id.lower(), name.chain_id


def _key_name_of(message: StreamMessage) -> KeyName:
    key_id = message.id.stream_id if message.group_key_id is None else message.group_key_id
    return message.id.publisher_id.lower(), key_id


def _check_signature(message: StreamMessage) -> None:
    """Refuse a key that another may have put into the message."""
    verdict = verify_message(message)
    if verdict is not Verdict.VALID:
        raise CodecError("key.signature", f"a new key is refused: {verdict.value}")
