"""Tests the eavesdropper on simulated wires, however what is sent is cut."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.framing import u16_frame
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.xx import PREAMBLE_BYTES
from rillnode.node.simulated.history import History
from rillnode.node.simulated.nodes import NOISE_PORT
from rillnode.node.simulated.programs import MARKER
from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.loop import Scheduler
from rillnode.node.simulation.network import Network
from rillnode.node.simulation.pipes import Pipe
from rillnode.node.simulation.scenario import NetworkTable
from rillnode.node.simulation.wire import WireAudit

NETWORK = Network(Scheduler(), 1, ConstantLatency(1.0), NetworkTable())
SEALED = [bytes([number]) * 40 for number in range(5)]


def pipe(*, dialling: bool = False) -> Pipe:
    return Pipe(NETWORK, "a", "b", NOISE_PORT, 1, dialling=dialling, way_seconds=0.001)


def rules(sent: bytes, cuts: list[int], *, dialling: bool = False) -> list[str]:
    """The rules that are broken when these bytes are sent in pieces."""
    history = History(lambda: 0.0)
    audit, wire = WireAudit(history), pipe(dialling=dialling)
    edges = [0, *sorted(cuts), len(sent)]
    for begin, end in pairwise(edges):
        audit.sent(wire, sent[begin:end])
    return [violation.rule for violation in history.violations]


def direction(records: list[bytes], *, dialling: bool = False, ephemeral: bytes = b"e") -> bytes:
    """A side's bytes: the preamble of who dials, its ephemeral key, then sealed records."""
    preamble = bytes(PREAMBLE_BYTES) if dialling else b""
    first = u16_frame(ephemeral * DH_BYTES)
    return preamble + first + b"".join(u16_frame(record) for record in records)


@pytest.mark.parametrize("dialling", [False, True])
@given(cuts=st.lists(st.integers(0, 250), max_size=20))
def test_records_that_differ_break_no_rule(dialling: bool, cuts: list[int]) -> None:
    assert rules(direction(SEALED, dialling=dialling), cuts, dialling=dialling) == []


@pytest.mark.parametrize("dialling", [False, True])
@given(cuts=st.lists(st.integers(0, 250), max_size=20))
def test_two_records_alike_are_found_wherever_they_are_cut(dialling: bool, cuts: list[int]) -> None:
    sent = direction([*SEALED, SEALED[2]], dialling=dialling)
    assert rules(sent, cuts, dialling=dialling) == ["nonce-reuse"]


def test_an_ephemeral_key_is_used_once() -> None:
    history = History(lambda: 0.0)
    audit = WireAudit(history)
    for key in (b"e", b"f", b"e"):
        audit.sent(pipe(), direction(SEALED, ephemeral=key))
    assert [violation.rule for violation in history.violations] == ["nonce-reuse"]


def test_plain_data_is_found() -> None:
    assert rules(direction([b"some " + MARKER + b"data"]), []) == ["plain-data"]
