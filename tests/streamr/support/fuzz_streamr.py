"""Lists readers of Streamr's texts: messages, keys, sessions, bodies of requests."""

from collections.abc import Callable
from typing import Final

from rillnode.codecs.streamr import (
    control,
    ethereum,
    network,
    node_address,
    rest_bodies,
    session_tokens,
    times,
)
from rillnode.codecs.streamr.encryption import GroupKey, decrypt_message, load_public_key
from rillnode.codecs.streamr.key_exchange import (
    decode_encrypted_key,
    decode_key_content,
    encode_encrypted_key,
)
from rillnode.codecs.streamr.message import decode_message, stored_text
from rillnode.codecs.streamr.message_objects import encode_object
from rillnode.codecs.streamr.signing import verify_message
from rillnode.codecs.streamr.stream_message import MessageType

KEY: Final = b"k" * 32
GROUP_KEY: Final = GroupKey("key", KEY)
ADDRESS: Final = "0x" + "ab" * 20


def message(data: bytes) -> None:
    """A message is kept, is read again as the same, and its signature is judged."""
    found = decode_message(data)
    stored = stored_text(found, data)
    again = decode_message(stored)
    assert (again.id, again.previous, again.content) == (found.id, found.previous, found.content)
    verify_message(found)
    encode_object(found)


def encrypted_message(data: bytes) -> None:
    decrypt_message(decode_message(data), GROUP_KEY)


def control_message(data: bytes) -> None:
    version, found = control.decode_control(data)
    inner = getattr(found, "message", None)
    control.encode_control(found, version, 32 if inner is None else inner.version)


def frame(data: bytes) -> None:
    found = network.decode_frame(data)
    assert network.decode_frame(network.encode_frame(found)) == found


def key_content(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    kind = MessageType(27 + len(data) % 7) if 27 + len(data) % 7 in set(MessageType) else 28
    decode_key_content(int(kind), text)


def encrypted_key(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    found = decode_encrypted_key(text)
    assert decode_encrypted_key(encode_encrypted_key(found)) == found


def public_key(data: bytes) -> None:
    load_public_key(data.decode("latin-1"))


def token(data: bytes) -> None:
    session_tokens.decode_token(data.decode("utf-8", "surrogateescape"), lambda _: [KEY])


def challenge(data: bytes) -> None:
    session_tokens.decode_challenge(data.decode("utf-8", "surrogateescape"), ADDRESS, KEY)


def signature(data: bytes) -> None:
    found = ethereum.recover_address(b"said", data.decode("utf-8", "surrogateescape"))
    assert ethereum.parse_address(found) == found


def address(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert ethereum.checksum_address(ethereum.parse_address(text)).lower() == text.lower()


def node(data: bytes) -> None:
    found = node_address.parse_node_address(data.decode("utf-8", "surrogateescape"))
    assert node_address.parse_node_address(str(found)) == found


def time(data: bytes) -> None:
    times.iso_time(times.read_time(data.decode("utf-8", "surrogateescape")))


TARGETS: Final[dict[str, Callable[[bytes], object]]] = {
    "streamr_message": message,
    "streamr_encrypted": encrypted_message,
    "streamr_control": control_message,
    "streamr_network": frame,
    "streamr_key_content": key_content,
    "streamr_encrypted_key": encrypted_key,
    "streamr_public_key": public_key,
    "streamr_token": token,
    "streamr_challenge": challenge,
    "streamr_signature": signature,
    "streamr_address": address,
    "streamr_node": node,
    "streamr_time": time,
    "streamr_body_login": rest_bodies.read_challenge_response,
    "streamr_body_api_key": rest_bodies.read_api_key,
    "streamr_body_permission": rest_bodies.read_permission,
    "streamr_body_storage": rest_bodies.read_storage_node,
    "streamr_body_stream": rest_bodies.read_stream,
    "streamr_body_content": rest_bodies.read_content,
}

SLOW: Final[tuple[str, ...]] = ()
