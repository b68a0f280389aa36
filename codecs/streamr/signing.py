"""Signatures of stream messages: what is signed, by whom, and whether it is true.

The signed text is fields written one after the other, nothing between them; the publisher in lower
case, numbers in decimal, absent ones as nothing:

    2 ETH         stream, partition, timestamp, sequence, publisher, chain,
                  previous timestamp and sequence, content, new group key
    1 ETH_LEGACY  stream, timestamp, publisher, content
                  stream, partition, timestamp, publisher, content: the specification's

The version is not signed, so a message keeps its signature from one version to the next. Neither
are its types and the id of its group key. An encrypted content is signed encrypted.

Source: streamr-client-protocol 5.3.1 and 8.0.5, SigningUtil; streamr-specs a65e0f9, signatureType.
"""

from collections.abc import Callable, Iterator
from enum import Enum

from msgspec.structs import replace

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.ethereum import EthereumKey, parse_address, recover_address
from rillnode.codecs.streamr.stream_message import SignatureType, StreamMessage


class Verdict(Enum):
    """A verdict on a message's signature."""

    VALID = "valid"
    UNSIGNED = "unsigned"
    UNKNOWN_TYPE = "unknown signature type"
    MALFORMED = "malformed signature or publisher"
    FORGED = "not signed by its publisher"


def signed_text(message: StreamMessage) -> str:
    """What a signature of type 2 (ETH) is made over."""
    name = message.id
    previous = message.previous
    before = "" if previous is None else f"{previous.timestamp}{_digits(previous.sequence)}"
    return (
        f"{name.stream_id}{name.partition}{name.timestamp}{name.sequence}"
        f"{name.publisher_id.lower()}{name.chain_id}{before}"
        f"{message.content}{message.new_group_key or ''}"
    )


def signed_legacy_text(message: StreamMessage) -> str:
    """What a signature of type 1 (ETH_LEGACY) is made over, as released."""
    name = message.id
    return f"{name.stream_id}{name.timestamp}{name.publisher_id.lower()}{message.content}"


def signed_specification_text(message: StreamMessage) -> str:
    """What a signature of type 1 is made over, as the specification has it."""
    name = message.id
    return (
        f"{name.stream_id}{name.partition}{name.timestamp}"
        f"{name.publisher_id.lower()}{message.content}"
    )


def sign_message(
    message: StreamMessage, key: EthereumKey, signature_type: SignatureType = SignatureType.ETH
) -> StreamMessage:
    """Return the message with its publisher's signature.

    Raises:
        CodecError: `signature.publisher`, the key is not the publisher's; `signature.type`, no
            type that signs; `codec.utf8`, a text of the message has no UTF-8 form.
    """
    if message.id.publisher_id.lower() != key.address.lower():
        raise CodecError("signature.publisher", "only its publisher can sign a message")
    match signature_type:
        case SignatureType.ETH:
            text = signed_text(message)
        case SignatureType.ETH_LEGACY:
            text = signed_legacy_text(message)
        case _:
            raise CodecError("signature.type", "this type is no signature")
    try:
        signature = key.sign(text.encode())
    except UnicodeEncodeError:
        raise CodecError("codec.utf8", "the message has no UTF-8 form") from None
    return replace(message, signature_type=int(signature_type), signature=signature)


def verify_message(message: StreamMessage) -> Verdict:
    """Find out whether the publisher has signed the message.

    Either text of type 1 will do, and of a text that is not ASCII either length: clients before 4
    tell the number of its UTF-16 units in place of its bytes (ethers 4). Whether the publisher may
    write to the stream is another question. Takes about 40 microseconds, for three quarters of
    which other threads may run.
    """
    if message.signature_type == SignatureType.NONE:
        return Verdict.UNSIGNED
    texts: tuple[Callable[[StreamMessage], str], ...]
    match message.signature_type:
        case SignatureType.ETH:
            texts = (signed_text,)
        case SignatureType.ETH_LEGACY:
            texts = (signed_legacy_text, signed_specification_text)
        case _:
            return Verdict.UNKNOWN_TYPE
    try:
        publisher = parse_address(message.id.publisher_id)
        for text in texts:
            if publisher in _signers(text(message), message.signature or ""):
                return Verdict.VALID
    except (CodecError, UnicodeEncodeError):
        return Verdict.MALFORMED
    return Verdict.FORGED


def _signers(text: str, signature: str) -> Iterator[str]:
    """Who has signed a text, in each of the ways in which released clients sign."""
    encoded = text.encode()
    yield recover_address(encoded, signature)
    if len(encoded) != len(text):
        yield recover_address(encoded, signature, len(text.encode("utf-16-le")) // 2)


def _digits(number: int | None) -> str:
    """A number as JavaScript writes it into a text."""
    return "null" if number is None else str(number)
