"""Lists readers of NextGraph's bytes: messages, connections, blocks."""

from collections.abc import Callable
from typing import Any, Final

from nextgraph_support import BROKER, LOGIN, PEER, broker, joined
from rillnode.codecs.nextgraph import bloom, bodies, bootstrap, text_ids
from rillnode.codecs.nextgraph.blocks import BLOCK, block_id, open_block, open_chunk
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue
from rillnode.codecs.nextgraph.commits import COMMIT_OBJECT, HEADER_OBJECT, commit_header
from rillnode.codecs.nextgraph.events import EVENT, check_event
from rillnode.codecs.nextgraph.inbox import LETTER, inbox_signature_holds
from rillnode.codecs.nextgraph.messages import decode_message, encode_message
from rillnode.codecs.nextgraph.objects import join_object
from rillnode.codecs.nextgraph.types import ObjectRef

KEY: Final = b"k" * 32
CONTENT_BYTES_MAX: Final = 1_048_576


def in_one_form(
    data: bytes, decode: Callable[[bytes], object], encode: Callable[[Any], bytes]
) -> None:
    """Padded or not, what is read is written in one form, which is no longer."""
    found = decode(data)
    form = encode(found)
    assert len(form) <= len(data)
    assert decode(form) == found
    assert encode(decode(form)) == form


def message(data: bytes) -> None:
    in_one_form(data, decode_message, encode_message)


def first_frame(data: bytes) -> None:
    """What a broker that has just been connected to makes of a frame."""
    dialogue = broker(discoverable=True)
    dialogue.receive(data)
    dialogue.take_output()


def first_answer(data: bytes) -> None:
    """What a client that has just connected makes of one."""
    dialogue = ClientDialogue(PEER, BROKER.public_key, LOGIN, ephemeral=b"e" * 32)
    dialogue.take_output()
    dialogue.receive(data)


def sealed_from_client(data: bytes) -> None:
    """A sealed message, which only who has shaken hands can send, to the broker."""
    near, far = joined()
    said = far.receive(near.seal(data))
    assert not isinstance(said, ClientMessage) or len(encode_message(said)) <= len(data)


def sealed_from_broker(data: bytes) -> None:
    near, far = joined()
    near.receive(far.seal(data))


def proof(data: bytes) -> None:
    """What a client says of itself once the channel is there."""
    near, far = ClientDialogue(PEER, BROKER.public_key, LOGIN), broker()
    far.receive(near.take_output()[0])
    near.receive(far.take_output()[0])
    far.receive(near.take_output()[0])
    far.receive(near.seal(data))


def block(data: bytes) -> None:
    """A block of anybody's, opened with a key that is not its own."""
    found = BLOCK.decode(data)
    assert BLOCK.encode(found) == data
    reference = ObjectRef(block_id(found), KEY)
    open_block(found, reference)
    join_object(reference, {reference.id: found}, content_bytes_max=CONTENT_BYTES_MAX)


def chunk(data: bytes) -> None:
    """A stream cipher's key is known to who has sealed: any plaintext can stand in a chunk."""
    open_chunk(data, KEY)


def event(data: bytes) -> None:
    found = EVENT.decode(data)
    assert EVENT.encode(found) == data
    commit_header(found.content.blocks)
    check_event(found)


def commit(data: bytes) -> None:
    in_one_form(data, COMMIT_OBJECT.decode, COMMIT_OBJECT.encode)


def header(data: bytes) -> None:
    in_one_form(data, HEADER_OBJECT.decode, HEADER_OBJECT.encode)


def body(data: bytes) -> None:
    found = bodies.transaction_of(data)
    assert len(bodies.TRANSACTION.encode(found)) <= len(data)


def letter(data: bytes) -> None:
    found = LETTER.decode(data)
    assert LETTER.encode(found) == data
    inbox_signature_holds(found)


def invitation(data: bytes) -> None:
    link = data.decode("utf-8", "surrogateescape")
    found = bootstrap.parse_invitation(link)
    assert bootstrap.parse_invitation(bootstrap.invitation_link("http://x", found)) == found


def text_id(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert text_ids.format_id(text_ids.parse_id(text)) == text


def known_digests(data: bytes) -> None:
    known = bloom.KnownDigests(bloom.BloomFilter(data))
    assert (bytes(32) in known) in (True, False)


TARGETS: Final[dict[str, Callable[[bytes], object]]] = {
    "nextgraph_message": message,
    "nextgraph_first_frame": first_frame,
    "nextgraph_first_answer": first_answer,
    "nextgraph_proof": proof,
    "nextgraph_from_client": sealed_from_client,
    "nextgraph_from_broker": sealed_from_broker,
    "nextgraph_block": block,
    "nextgraph_chunk": chunk,
    "nextgraph_event": event,
    "nextgraph_commit": commit,
    "nextgraph_header": header,
    "nextgraph_body": body,
    "nextgraph_letter": letter,
    "nextgraph_invitation": invitation,
    "nextgraph_id": text_id,
    "nextgraph_bloom": known_digests,
}

SLOW: Final = (
    "nextgraph_first_frame", "nextgraph_first_answer", "nextgraph_proof", "nextgraph_from_client",
    "nextgraph_from_broker", "nextgraph_event", "nextgraph_letter",
)  # fmt: skip
"""Those that shake hands or check signatures for each input."""
