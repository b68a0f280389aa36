"""Decides whether a message may be published, and what a client may do with a stream.

What is granted to `anonymous` is granted to everybody here, as Streamr's public permissions are.
"""

from typing import Final

from rillnode.actors.core.access import ANONYMOUS, Access, Verb
from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr.requests import (
    FUTURE_TIMESTAMP,
    PERMISSION_DENIED,
    REQUEST_FAILED,
    Publication,
)
from rillnode.actors.streamr.sessions import ETHEREUM
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.streamr.encryption import from_hex
from rillnode.codecs.streamr.limits import STREAMR_FUTURE_SECONDS_MAX, STREAMR_ID_BYTES_MAX
from rillnode.codecs.streamr.signing import Verdict, verify_message
from rillnode.codecs.streamr.stream_message import (
    EncryptionType,
    MessageType,
    SignatureType,
    StreamMessage,
)

KEY_TYPES: Final = frozenset(
    (
        MessageType.GROUP_KEY_REQUEST,
        MessageType.GROUP_KEY_RESPONSE,
        MessageType.GROUP_KEY_ANNOUNCE,
        MessageType.GROUP_KEY_ERROR_RESPONSE,
    )
)
"""What belongs on key-exchange streams. A rotation is sent on the stream that it is about."""


_AES_TYPES: Final = (EncryptionType.AES, EncryptionType.NEW_KEY_AND_AES)

_KEY_NAMING_VERSION: Final = 32
"""The first version in which messages name the key that encrypts them."""


def may(access: Access, principal: str, verb: Verb, stream_id: str) -> bool:
    """Whether a principal, or everybody, may do something with a stream."""
    return access.allows(principal, verb, stream_id) or access.allows(ANONYMOUS, verb, stream_id)


def may_resend(access: Access, principal: str, stream_id: str) -> bool:
    """Whether a principal may have what a stream keeps."""
    return may(access, principal, "pull", stream_id) or may(
        access, principal, "subscribe", stream_id
    )


def ethereum_principal(address: str) -> str:
    """The principal of an Ethereum address."""
    return ETHEREUM + address.lower()


def publisher_of(publication: Publication) -> str:
    """Who publishes a message: its signer, or whoever the session is of."""
    message = publication.message
    if message.signature_type == SignatureType.NONE:
        return publication.principal
    return ethereum_principal(message.id.publisher_id)


def check_permission(publication: Publication, access: Access) -> None:
    """Check that its publisher may write to the stream; the signature is not looked at.

    Raises:
        RequestError: PERMISSION_DENIED, whether there is such a stream or not.
    """
    if _is_in_anothers_name(publication):
        raise RequestError(PERMISSION_DENIED, "What is sent in another's name has to be signed")
    stream_id = publication.message.id.stream_id
    if not may(access, publisher_of(publication), "push", stream_id):
        raise RequestError(PERMISSION_DENIED, f"You are not allowed to publish to {stream_id}")


def _is_in_anothers_name(publication: Publication) -> bool:
    """Whether an address that has logged in names another one, and no signature proves it.

    Readers would take it for the other's, and the other's next ones for old. What belongs to no
    address has no name to be held to: clients choose it.
    """
    principal, message = publication.principal, publication.message
    named = message.id.publisher_id
    return (
        message.signature_type == SignatureType.NONE
        and principal.startswith(ETHEREUM)
        and bool(named)
        and ethereum_principal(named) != principal
    )


def check_encryption(message: StreamMessage, *, names_keys: bool) -> None:
    """Check that a reader who has the key can make something of what is encrypted by AES.

    Only of what a client publishes: other nodes pass on what theirs were allowed to.

    Args:
        message: the message.
        names_keys: whether the client is to name the key, where the message's version can; released
            clients 4 do not.

    Raises:
        RequestError: REQUEST_FAILED.
    """
    if message.encryption_type not in _AES_TYPES:
        return
    if names_keys and message.version >= _KEY_NAMING_VERSION and not message.group_key_id:
        text = "A content that is encrypted by AES needs the id of its key: groupKeyId is missing"
        raise RequestError(REQUEST_FAILED, text)
    try:
        from_hex(message.content)
    except CodecError:
        text = "A content that is encrypted by AES is written in hexadecimal digits, two a byte"
        raise RequestError(REQUEST_FAILED, text) from None


def check_head(message: StreamMessage, now_ms: int) -> None:
    """Check what depends neither on the stream nor on a signature: time and sizes.

    Raises:
        RequestError: FUTURE_TIMESTAMP, REQUEST_FAILED.
    """
    name = message.id
    if name.timestamp > now_ms + STREAMR_FUTURE_SECONDS_MAX * 1_000:
        text = f"Timestamps may be at most {STREAMR_FUTURE_SECONDS_MAX} seconds in the future"
        raise RequestError(FUTURE_TIMESTAMP, text)
    for part in (name.publisher_id, name.chain_id):
        if len(part) > STREAMR_ID_BYTES_MAX:
            text = f"Publisher and chain ids have at most {STREAMR_ID_BYTES_MAX} characters"
            raise RequestError(REQUEST_FAILED, text)


def check_verdict(verdict: Verdict) -> None:
    """Check what was found out about a message's signature; unsigned ones pass.

    Raises:
        RequestError: REQUEST_FAILED.
    """
    if verdict is not Verdict.VALID and verdict is not Verdict.UNSIGNED:
        raise RequestError(REQUEST_FAILED, f"Signature validation failed: {verdict.value}")


def check_message(message: StreamMessage, now_ms: int) -> None:
    """Check what does not depend on the stream, and the signature where there is one.

    Raises:
        RequestError: FUTURE_TIMESTAMP, REQUEST_FAILED.
    """
    check_head(message, now_ms)
    check_verdict(verify_message(message))


def check_rules(message: StreamMessage, record: StreamRecord) -> None:
    """Check a message against what its stream asks for.

    Raises:
        RequestError: REQUEST_FAILED.
    """
    if message.message_type in KEY_TYPES:
        raise RequestError(REQUEST_FAILED, "Key messages belong on key-exchange streams")
    rotates = message.message_type == MessageType.GROUP_KEY_ROTATE
    if rotates and message.encryption_type != EncryptionType.AES:
        raise RequestError(REQUEST_FAILED, "A rotation is encrypted by AES under the key before it")
    if record.require_signed and message.signature_type == SignatureType.NONE:
        raise RequestError(REQUEST_FAILED, "This stream requires data to be signed")
    if record.require_encrypted and message.encryption_type == EncryptionType.NONE:
        raise RequestError(REQUEST_FAILED, "This stream requires data to be encrypted")
