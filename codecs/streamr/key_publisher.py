"""The publisher's side of key exchange: gives group keys to the subscribers it is told of.

It does no I/O: messages from its key stream go in, events come out, and the time is an argument,
in milliseconds since 1970.

Source: streamr-client 5.2.1, publisher key exchange; streamr-specs a65e0f9 for reset and rotation.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import suppress

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.encryption import Entropy, GroupKey, encrypt, load_public_key, wrap
from rillnode.codecs.streamr.ethereum import EthereumKey, parse_address
from rillnode.codecs.streamr.key_exchange import (
    INVALID_REQUEST,
    UNKNOWN_KEY,
    EncryptedKey,
    GroupKeyAnnounce,
    GroupKeyErrorResponse,
    GroupKeyRequest,
    GroupKeyReset,
    GroupKeyResponse,
    GroupKeyRotate,
    encode_key_content,
    key_stream_of,
)
from rillnode.codecs.streamr.key_messages import (
    Dropped,
    KeyEvent,
    KeyMessageWriter,
    Publish,
    read_key_message,
)
from rillnode.codecs.streamr.limits import STREAMR_SUBSCRIBERS_MAX
from rillnode.codecs.streamr.stream_message import StreamMessage


class KeyPublisher:
    """Holds a publisher's group keys and answers requests for them.

    A key is given for its own stream only, and only to subscribers that were allowed there. Their
    RSA keys are remembered for announcements; beyond `subscribers_max` the longest unused is
    forgotten.

    Args:
        key: signs answers; requests come on the key stream of its address.
        chain_id: of the answers; other instances of the publisher have others.
    """

    def __init__(
        self,
        key: EthereumKey,
        chain_id: str,
        *,
        subscribers_max: int = STREAMR_SUBSCRIBERS_MAX,
    ) -> None:
        self._address = key.address
        self._writer = KeyMessageWriter(key, chain_id)
        self._keys: defaultdict[str, dict[str, GroupKey]] = defaultdict(dict)
        self._allowed: defaultdict[str, set[str]] = defaultdict(set)
        self._public: set[str] = set()
        self._rsa_keys: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._subscribers_max = subscribers_max

    @property
    def key_stream(self) -> str:
        """Where requests arrive, on partition 0: subscribe to it."""
        return key_stream_of(self._address)

    def add_key(self, stream_id: str, key: GroupKey) -> None:
        """Give this key to the stream's subscribers from now on."""
        self._keys[stream_id][key.id] = key

    def replace_keys(self, stream_id: str, key: GroupKey) -> None:
        """Give this key to the stream's subscribers from now on, and no other any more."""
        self._keys[stream_id] = {key.id: key}

    def allow(self, stream_id: str, subscriber: str) -> None:
        """Let an address have the stream's keys.

        Raises:
            CodecError: `ethereum.address`.
        """
        self._allowed[stream_id].add(parse_address(subscriber))

    def allow_all(self, stream_id: str) -> None:
        """Let every address have the keys of a stream that is open to all."""
        self._public.add(stream_id)

    def revoke(self, stream_id: str, subscriber: str) -> None:
        """Give an address no more keys of the stream. It keeps those it has: reset them.

        Raises:
            CodecError: `ethereum.address`.
        """
        address = parse_address(subscriber)
        self._allowed[stream_id].discard(address)
        self._rsa_keys.pop((stream_id, address), None)

    def handle(self, message: StreamMessage, now_ms: int) -> list[KeyEvent]:
        """Answer a message on the publisher's key stream; unsigned ones get no answer.

        The keys that are known come in a response, and after it an error tells of the others.
        Takes 0.2 ms for each key.
        """
        try:
            content = read_key_message(message, self._address)
        except CodecError as error:
            return [Dropped(message=message, code=error.code, text=error.text)]
        if not isinstance(content, GroupKeyRequest):
            text = "publishers answer requests for keys by id, and nothing else"
            return [Dropped(message=message, code="key.type", text=text)]
        subscriber = message.id.publisher_id.lower()
        return list(self._answers(content, subscriber, now_ms))

    def announce(self, stream_id: str, key: GroupKey, now_ms: int) -> list[KeyEvent]:
        """Add a key and send it to all subscribers whose RSA key is known, as released software.

        Those who are unknown ask for it when they meet it.
        """
        self.add_key(stream_id, key)
        return [
            self._writer.write(
                subscriber,
                GroupKeyAnnounce(stream_id, (EncryptedKey(key.id, secret),)),
                now_ms,
            )
            for subscriber, secret in self._wrap_for_all(stream_id, key)
        ]

    def reset(self, stream_id: str, key: GroupKey, now_ms: int) -> list[KeyEvent]:
        """Replace all keys of the stream by one, in the form of the specification.

        Whoever was revoked before cannot read what follows.
        """
        self.replace_keys(stream_id, key)
        return [
            self._writer.write(subscriber, GroupKeyReset(stream_id, key.id, secret), now_ms)
            for subscriber, secret in self._wrap_for_all(stream_id, key)
        ]

    def rotate(
        self,
        stream_id: str,
        partition: int,
        key: GroupKey,
        previous: GroupKey,
        now_ms: int,
        entropy: Entropy,
    ) -> list[KeyEvent]:
        """Add a key and send it on the stream under the previous one, as the specification has it.

        Released software cannot read such a message.
        """
        self.add_key(stream_id, key)
        plain = encode_key_content(GroupKeyRotate(key.id, key.secret.hex()))
        encrypted = encrypt(plain.encode(), previous, entropy)
        return [self._writer.write_rotation(stream_id, partition, encrypted, previous.id, now_ms)]

    def _answers(self, request: GroupKeyRequest, subscriber: str, now_ms: int) -> Iterator[Publish]:
        stream_id = request.stream_id
        known = self._keys.get(stream_id, {})
        # Refused the same way whether or not there is such a stream.
        if stream_id not in self._public and subscriber not in self._allowed.get(stream_id, ()):
            yield self._refuse(request, subscriber, "not a subscriber of the stream", now_ms)
            return
        asked = tuple(dict.fromkeys(request.group_key_ids))
        unknown = tuple(key_id for key_id in asked if key_id not in known)
        try:
            public_key = load_public_key(request.rsa_public_key)
            keys = tuple(
                EncryptedKey(key_id, wrap(known[key_id].secret, public_key))
                for key_id in asked
                if key_id in known
            )
        except CodecError as error:
            yield self._refuse(request, subscriber, error.text, now_ms)
            return
        self._rsa_keys[stream_id, subscriber] = request.rsa_public_key
        self._rsa_keys.move_to_end((stream_id, subscriber))
        if len(self._rsa_keys) > self._subscribers_max:
            self._rsa_keys.popitem(last=False)
        # The response first: released clients take what comes first for the whole answer.
        if keys:
            response = GroupKeyResponse(request.request_id, stream_id, keys)
            yield self._writer.write(subscriber, response, now_ms)
        if unknown:
            text = "this publisher does not have these keys (any more)"
            rest = GroupKeyErrorResponse(request.request_id, stream_id, UNKNOWN_KEY, text, unknown)
            yield self._writer.write(subscriber, rest, now_ms)
        elif not keys:
            yield self._refuse(request, subscriber, "the request asks for no key", now_ms)

    def _refuse(self, request: GroupKeyRequest, subscriber: str, text: str, now_ms: int) -> Publish:
        content = GroupKeyErrorResponse(
            request.request_id, request.stream_id, INVALID_REQUEST, text, request.group_key_ids
        )
        return self._writer.write(subscriber, content, now_ms)

    def _wrap_for_all(self, stream_id: str, key: GroupKey) -> list[tuple[str, str]]:
        """The key encrypted to each subscriber of the stream whose RSA key is known."""
        wrapped: list[tuple[str, str]] = []
        for (stream, subscriber), pem in self._rsa_keys.items():
            # One subscriber's useless key is no reason to leave out the others.
            with suppress(CodecError):
                if stream == stream_id:
                    wrapped.append((subscriber, wrap(key.secret, load_public_key(pem))))
        return wrapped
