"""The opening of a secure channel: Noise XX in three messages, as payloads of wire messages.

    initiator                                    responder
      1: e, (payload)                     ->     the listener
                                          <-     2: e, ee, s, es, payload
      3: s, se, payload                   ->     the address that 2 came from

`Noise_XX_25519_AESGCM_SHA256`, no prologue. Unlike in Noise, the responder seals with the first
key of Split and the initiator with the second. Payloads 2 and 3 are the sender's own address for
the channel in Elixir, and empty in Rust; nobody acts on them.

What a responder knows, and when (`Level` has the levels):

| message 1 | level |
|---|---|
| exactly 32 bytes | Elixir 2021, for certain |
| BARE data, then an `optional<Address>` that holds one | Rust 2021, or 2022's first weeks |
| BARE data, then an empty optional or an `optional<data>` | 2022, or Rust 2021 |
| BARE data and nothing else | 2023 and later, which prove identities: refused |
| more than 32 bytes that are none of these | Elixir 2021 with a payload in message 1 |

Where two are left, the peer's first sealed message tells, by the nonce that it opens with.
An address is told from data by its length: its type stands where data has its size. From 2024-06
message 1 has the form of 2021 again; its sender finds that message 2 is not for it, and no
message 3 follows.

Source: github.com/build-trust/ockam, `key_establishment_protocol/xx` (Elixir) and `ockam_channel`,
`ockam_key_exchange_xx` (Rust), 2021-06 to 2023-05; The Noise Protocol Framework, revision 34.
"""

from typing import Final, NamedTuple

from rillnode.codecs.errors import CodecError
from rillnode.codecs.noise.cipher import TAG_BYTES
from rillnode.codecs.noise.handshake import DH_BYTES, NoiseHandshake
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level, unwrap, wrap
from rillnode.codecs.ockam.limits import CHANNEL_HANDSHAKE_BYTES_MAX
from rillnode.codecs.routing.routes import Address
from rillnode.codecs.varint import encode_uint, read_data, read_uint

_NAME: Final = "Noise_XX_25519_AESGCM_SHA256"
_STATIC_BYTES: Final = DH_BYTES + TAG_BYTES
_MESSAGE_2_BYTES_MIN: Final = DH_BYTES + _STATIC_BYTES + TAG_BYTES
_MESSAGE_3_BYTES_MIN: Final = _STATIC_BYTES + TAG_BYTES

_NONE: Final = b"\x00"
_SOME: Final = 1


class FirstMessage(NamedTuple):
    """Message 1, taken out of its form.

    Attributes:
        noise: the bytes that Noise reads.
        levels: which levels its form leaves possible, the likeliest first.
        callback: worker at the responder that is to be told of the new channel.
    """

    noise: bytes
    levels: tuple[Level, ...]
    callback: Address | None = None


class ChannelResponder:
    """The listener's side of one handshake; of no use after an error.

    Args:
        static: this side's private X25519 key.
        payload: of the wire message with message 1.
        ephemeral: private key of this handshake only; None: a new one.

    Raises:
        CodecError: see `read_first_message`.

    Attributes:
        callback: worker here that is to be told of the new channel.
    """

    __slots__ = ("_handshake", "_levels", "callback")

    def __init__(self, static: bytes, payload: bytes, *, ephemeral: bytes | None = None) -> None:
        first = read_first_message(payload)
        self.callback = first.callback
        self._levels = first.levels
        self._handshake = _handshake(static, ephemeral, initiator=False)
        self._handshake.read(first.noise)

    @property
    def remote_key(self) -> bytes:
        """The peer's static public key, once message 3 was read."""
        return self._handshake.remote_static

    @property
    def handshake_hash(self) -> bytes:
        """Noise's `h`, which names the channel once message 3 was read."""
        return self._handshake.hash

    def message_2(self, address: bytes) -> bytes:
        """Write message 2 with this side's address for the channel as its payload.

        Raises:
            HandshakeError: the peer's key gives no shared secret.
        """
        return wrap(self._levels[0], self._handshake.write(address))

    def finish(self, payload: bytes) -> ChannelSession:
        """Read message 3.

        Raises:
            CodecError: it has another form or size.
            HandshakeError: it is not authentic.
        """
        message = _unwrap(self._levels[0], payload, _MESSAGE_3_BYTES_MIN)
        self._handshake.read(message)
        return _session(self._handshake, self._levels)


class ChannelInitiator:
    """The side that opens a channel; of no use after an error.

    Args:
        level: what the responder speaks.
        static: this side's private X25519 key.
        ephemeral: private key of this handshake only; None: a new one.
    """

    __slots__ = ("_handshake", "_level")

    def __init__(self, level: Level, static: bytes, *, ephemeral: bytes | None = None) -> None:
        self._level = level
        self._handshake = _handshake(static, ephemeral, initiator=True)

    @property
    def remote_key(self) -> bytes:
        """The responder's static public key, once message 2 was read."""
        return self._handshake.remote_static

    def message_1(self, callback: Address | None = None) -> bytes:
        """Write message 1, in the form of the level.

        Args:
            callback: Rust 2021 only: worker at the responder that is to be told of the channel.
        """
        message = self._handshake.write(b"")
        if not self._level.wrapped:
            return message
        told = _NONE
        if callback is not None and self._level is Level.RUST_2021:
            told = bytes((_SOME,)) + _encode_address(callback)
        return wrap(self._level, message) + told

    def read_message_2(self, payload: bytes) -> None:
        """Read message 2; `remote_key` is known then, and nothing of this side's is told yet.

        Raises:
            CodecError: it has another form or size.
            HandshakeError: it is not authentic.
        """
        self._handshake.read(_unwrap(self._level, payload, _MESSAGE_2_BYTES_MIN))

    def finish(self, address: bytes) -> tuple[bytes, ChannelSession]:
        """Write message 3 with this side's address for the channel as its payload.

        Raises:
            HandshakeError: the peer's key gives no shared secret.
        """
        message = wrap(self._level, self._handshake.write(address))
        return message, _session(self._handshake, (self._level,))


def read_first_message(payload: bytes) -> FirstMessage:
    """Take message 1 out of its form, and tell which levels that leaves.

    Raises:
        CodecError: `codec.truncated`, shorter than a key; `codec.limit`, longer than any real
            one; `channel.identities`, the form of 2023, which this module does not speak.
    """
    if len(payload) < DH_BYTES:
        raise CodecError("codec.truncated", "message 1 has no key", offset=len(payload))
    if len(payload) > CHANNEL_HANDSHAKE_BYTES_MAX:
        text = f"message 1 has more than {CHANNEL_HANDSHAKE_BYTES_MAX} bytes"
        raise CodecError("codec.limit", text, offset=CHANNEL_HANDSHAKE_BYTES_MAX)
    if len(payload) > DH_BYTES:
        try:
            start, end = read_data(payload, 0)
        except CodecError:
            start = end = 0
        if end - start >= DH_BYTES:
            if end == len(payload):
                text = "the peer's secure channel proves identities, as those since 2023"
                raise CodecError("channel.identities", text)
            wrapped = _read_optional(payload[start:end], payload, end)
            if wrapped is not None:
                return wrapped
    return FirstMessage(payload, (Level.ELIXIR_2021,))


def encode_completed(address: Address, handshake_hash: bytes) -> bytes:
    """Encode what the callback worker of message 1 is told: `{address: Address, hash: data<32>}`.

    Source: build-trust/ockam, ockam_channel, `KeyExchangeCompleted`.
    """
    return _encode_address(address) + handshake_hash


def _encode_address(address: Address) -> bytes:
    return b"".join((encode_uint(address.type), encode_uint(len(address.value)), address.value))


def _read_optional(noise: bytes, payload: bytes, at: int) -> FirstMessage | None:
    """Read what stands behind the wrapped bytes, or None where it is no optional."""
    rest = payload[at:]
    if rest == _NONE:
        return FirstMessage(noise, (Level.BOTH_2022, Level.RUST_2021))
    if rest[0] != _SOME:
        return None
    try:
        if read_data(payload, at + 1)[1] == len(payload):
            return FirstMessage(noise, (Level.BOTH_2022, Level.RUST_2021))
    except CodecError:
        pass  # no data, then
    try:
        kind, after = read_uint(payload, at + 1)
        start, end = read_data(payload, after)
    except CodecError:
        return None
    if end != len(payload):
        return None
    callback = Address(kind, payload[start:end])
    return FirstMessage(noise, (Level.RUST_2021, Level.BOTH_2022), callback)


def _handshake(static: bytes, ephemeral: bytes | None, *, initiator: bool) -> NoiseHandshake:
    return NoiseHandshake(
        _NAME, initiator=initiator, prologue=b"", static=static, ephemeral=ephemeral
    )


def _unwrap(level: Level, payload: bytes, bytes_min: int) -> bytes:
    if len(payload) > CHANNEL_HANDSHAKE_BYTES_MAX:
        text = f"a handshake message has more than {CHANNEL_HANDSHAKE_BYTES_MAX} bytes"
        raise CodecError("codec.limit", text, offset=CHANNEL_HANDSHAKE_BYTES_MAX)
    message = unwrap(level, payload)
    if len(message) < bytes_min:
        raise CodecError("codec.truncated", "a handshake message is cut", offset=len(payload))
    return message


def _session(handshake: NoiseHandshake, levels: tuple[Level, ...]) -> ChannelSession:
    assert handshake.keys is not None
    first, second = handshake.keys
    sealing, opening = (second, first) if handshake.initiator else (first, second)
    return ChannelSession(
        levels, sealing_key=sealing, opening_key=opening, handshake_hash=handshake.hash
    )
