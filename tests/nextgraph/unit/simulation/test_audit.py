"""Tests an eavesdropper on the WebSocket frames of NextGraph's clients."""

import pytest

from rillnode.node.nextgraph.simulation.audit import NEXTGRAPH_PORT, NextgraphAudit
from rillnode.node.simulated.history import History
from rillnode.node.simulated.nodes import NOISE_PORT
from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.loop import Scheduler
from rillnode.node.simulation.network import Network
from rillnode.node.simulation.pipes import Pipe
from rillnode.node.simulation.scenario import NetworkTable

NETWORK = Network(Scheduler(), 1, ConstantLatency(0.001), NetworkTable())
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n"
ASKED = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"
MASK = b"\x01\x02\x03\x04"
CLOSED = b"\x88\x02\x03\xe8"


def pipe(port: int = NEXTGRAPH_PORT, *, dialling: bool = False) -> Pipe:
    return Pipe(NETWORK, "a", "b", port, 1, dialling=dialling, way_seconds=0.001)


def frame(payload: bytes, *, masked: bool = False) -> bytes:
    """A binary frame, as WebSockets write it."""
    size, bit = len(payload), 0x80 * masked
    if size < 126:
        head = bytes((0x82, bit | size))
    elif size < 65_536:
        head = bytes((0x82, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x82, bit | 127)) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    return head + MASK + bytes(one ^ MASK[at % 4] for at, one in enumerate(payload))


def message(text: bytes) -> bytes:
    """A Noise message of less than 16 KiB."""
    size = len(text)
    length = bytes((size,)) if size < 128 else bytes((0x80 | size & 0x7F, size >> 7))
    return b"\x06\x00" + length + text


def rules(
    *messages: bytes, cut: int = 7, dialling: bool = False, port: int = NEXTGRAPH_PORT
) -> list[str]:
    """What is broken where a side sends these messages, cut into pieces."""
    history = History(lambda: 0.0)
    audit = NextgraphAudit(history)
    audit.words.append(b"the word")
    sent = ASKED if dialling else UPGRADED
    sent += b"".join(frame(message(one), masked=dialling) for one in messages) + CLOSED
    way = pipe(port, dialling=dialling)
    for at in range(0, len(sent), cut):
        audit.sent(way, sent[at : at + cut])
    return [one.rule for one in history.violations]


FIRST = b"e" * 48
SEALED = [bytes((number,)) * size for number, size in ((1, 20), (2, 200), (3, 9_000))]


@pytest.mark.parametrize("dialling", [False, True])
@pytest.mark.parametrize("cut", [1, 7, 100_000])
def test_what_is_sealed_and_different_is_right(cut: int, dialling: bool) -> None:
    assert rules(FIRST, *SEALED, cut=cut, dialling=dialling) == []


@pytest.mark.parametrize("sealed", SEALED)
def test_frames_that_begin_alike_have_one_nonce(sealed: bytes) -> None:
    assert rules(FIRST, sealed, b"other" * 9, sealed) == ["nonce-reuse"]


def test_the_second_frame_of_a_client_is_none_of_the_sealed_ones() -> None:
    assert rules(FIRST, SEALED[0], SEALED[0], dialling=True) == []
    assert rules(FIRST, SEALED[1], SEALED[0], SEALED[0], dialling=True) == ["nonce-reuse"]


@pytest.mark.parametrize("dialling", [False, True])
def test_a_word_that_can_be_read_is_found(dialling: bool) -> None:
    assert rules(FIRST, SEALED[0], b"....the word....", dialling=dialling) == ["plain-data"]


def test_an_ephemeral_key_is_used_once() -> None:
    history = History(lambda: 0.0)
    audit = NextgraphAudit(history)
    for _ in range(2):
        audit.sent(pipe(), UPGRADED + frame(message(FIRST)))
    assert [one.rule for one in history.violations] == ["nonce-reuse"]


def test_other_wires_and_other_answers_are_not_looked_at() -> None:
    assert rules(FIRST, SEALED[0], SEALED[0], port=NOISE_PORT) == []
    history = History(lambda: 0.0)
    audit = NextgraphAudit(history)
    audit.sent(pipe(), b"HTTP/1.1 403 Forbidden\r\n\r\n" + 2 * frame(message(FIRST)))
    assert history.violations == []
