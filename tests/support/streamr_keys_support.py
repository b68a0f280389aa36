"""Keys, messages and randomness for the tests of Streamr's key exchange."""

from functools import cache
from itertools import count
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from rillnode.codecs.streamr.encryption import Entropy, GroupKey, RsaKey, encrypt_message
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import MessageId, StreamMessage

PUBLISHER: Final = EthereumKey(bytes([1]) * 32)
SUBSCRIBER: Final = EthereumKey(bytes([2]) * 32)
STRANGER: Final = EthereumKey(bytes([3]) * 32)
STREAM: Final = "sandbox/test"
FIRST: Final = GroupKey("key-1", bytes([11]) * 32)
SECOND: Final = GroupKey("key-2", bytes([22]) * 32)


def counting_entropy() -> Entropy:
    """Randomness that never repeats and is the same in every run."""
    numbers = count(1)
    return lambda size: next(numbers).to_bytes(size, "big")


@cache
def rsa_key() -> RsaKey:
    """One RSA key for all tests, of the least size that is taken."""
    return RsaKey.generate(2_048)


def useless_pem() -> str:
    """A public key that is read, but cannot be calculated with: its modulus is even."""
    return (
        rsa.RSAPublicNumbers(65_537, 2**2_047)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def message_of(
    number: int,
    key: GroupKey | None = None,
    *,
    publisher: EthereumKey = PUBLISHER,
    chain_id: str = "chain",
    next_key: GroupKey | None = None,
) -> StreamMessage:
    """The nth message of a publisher's chain, encrypted where a key is given, and signed."""
    message = StreamMessage(
        id=MessageId(STREAM, 0, 1_000 + number, 0, publisher.address, chain_id),
        content=f'{{"n":{number}}}',
    )
    if key is not None:
        entropy = counting_entropy()
        message = encrypt_message(message, key, entropy, next_key=next_key)
    return sign_message(message, publisher)
