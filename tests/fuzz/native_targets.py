"""Lists readers of rillnode's own bytes: the link, messages, blocks."""

from collections.abc import Callable
from typing import Final

from rillnode.codecs import bare, entries, native
from rillnode.codecs.framing import FrameCutter, MessageJoiner
from rillnode.codecs.keys import Identity, verify, x25519_form
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.spark import row_envelope

NODE: Final = Identity.from_seed(b"node".ljust(32, b"."))
CLIENT: Final = Identity.from_seed(b"client".ljust(32, b"."))
SEALED: Final = {b"x" * 10, b"y"}
"""What the corpus's records hold: nobody without the keys can make others."""

LENGTHS: Final = bare.Codec[list[tuple[int, str | None]]](list[tuple[bare.UInt, str | None]])


def _pair() -> tuple[NoiseLink, NoiseLink]:
    """Both sides of a link, always with the same keys."""
    near = NoiseLink.initiator(CLIENT, node_identity=NODE.public_hex, ephemeral=b"a" * 32)
    far = NoiseLink.responder(NODE, accept=lambda _: True, ephemeral=b"b" * 32)
    return near, far


def to_listener(data: bytes) -> None:
    """Whatever comes to a listener in place of a handshake, or within one."""
    _, far = _pair()
    far.receive(data)
    far.take_output()
    assert not far.established or far.remote_identity == CLIENT.public_hex


def to_dialler(data: bytes) -> None:
    near, _ = _pair()
    near.start()
    near.receive(data)
    assert not near.established or near.remote_identity == NODE.public_hex


def records(data: bytes) -> None:
    """Bytes on a link whose handshake is done."""
    near, far = _pair()
    far.receive(near.start())
    near.receive(far.take_output())
    far.receive(near.take_output())
    assert far.established
    assert set(far.receive(data)) <= SEALED


def joined(data: bytes) -> None:
    """What stands in records: the messages are the same however the pieces are cut."""
    whole: list[bytes] = []
    split: list[bytes] = []
    MessageJoiner().feed(data, whole)
    joiner = MessageJoiner()
    for at in range(0, len(data), 7):
        joiner.feed(data[at : at + 7], split)
    assert whole == split


def cut(data: bytes) -> None:
    whole = [bytes(frame) for frame in FrameCutter().cut(memoryview(data))]
    cutter = FrameCutter()
    pieces = [data[at : at + 5] for at in range(0, len(data), 5)]
    assert [bytes(f) for piece in pieces for f in cutter.cut(memoryview(piece))] == whole


def request(data: bytes) -> None:
    assert native.encode(native.decode_request(data)) == data


def response(data: bytes) -> None:
    found = native.decode_response(data)
    assert native.encode(found) == data
    if isinstance(found, native.BlocksResponse):
        for block in native.blocks_of(found):
            stored_block(block.value)


def body(data: bytes) -> None:
    """A body as a producer sends it: its number of entries and flags, then the bytes."""
    if len(data) < 3:
        return
    count, flags, packed = int.from_bytes(data[:2], "big"), data[2] & 7, data[3:]
    entries.check_body(count, packed, flags)
    kept = entries.encode_block(
        count=count,
        kind=entries.EntryKind.BYTES,
        received_at=0,
        position=0,
        body=packed,
        flags=flags,
    )
    found = entries.entries_of(entries.Block(0, kept))
    assert len(found) == count
    given = (
        len(entry.data) + len(entry.key or b"") + len(entry.encoded_headers) for entry in found
    )
    assert entries.data_bytes(count, packed, flags) == sum(given)
    assert all(isinstance(entry.headers, dict) for entry in found)


def stored_block(data: bytes) -> None:
    """A block as a reader gets it."""
    found = entries.entries_of(entries.Block(0, data))
    assert len(found) == entries.decode_header(data).count == len(entries.sizes_of(data))


def lengths(data: bytes) -> None:
    """A list of nearly everything that BARE has."""
    assert LENGTHS.encode(LENGTHS.decode(data)) == data
    LENGTHS.decode(data, lenient=True)


def key(data: bytes) -> None:
    verify(data[:32], b"said", data[32:96])
    x25519_form(data[:32])


TARGETS: Final[dict[str, Callable[[bytes], object]]] = {
    "noise_listener": to_listener,
    "noise_dialler": to_dialler,
    "noise_records": records,
    "link_messages": joined,
    "link_frames": cut,
    "native_request": request,
    "native_response": response,
    "native_body": body,
    "native_block": stored_block,
    "row_envelope": row_envelope.decode_row,
    "bare": lengths,
    "keys": key,
}
