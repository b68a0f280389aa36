"""The desk: invitations for administrators of the node, and for nobody else."""

import json
from typing import Any

import pytest

from core_support import Peer
from coroutines import run_with
from nextgraph_broker import Broker
from rillnode.codecs.nextgraph.bootstrap import parse_invitation
from rillnode.codecs.nextgraph.start import AuthResult, Registration


async def ask(peer: Peer, payload: bytes) -> list[Any]:
    peer.answers.clear()
    peer.send("nextgraph", payload)
    await peer.core.settle()
    return [json.loads(answer.payload) for answer in peer.answers]


@run_with(registration="invitation")
async def test_an_invitation_lets_its_holder_in(broker: Broker) -> None:
    asked = b'{"kind": "multi", "memo": "for all", "origin": "http://localhost:1440"}'
    (made,) = await ask(broker.core.peer(), asked)
    assert made["error"] is None
    assert made["link"].startswith("http://localhost:1440/#/i/")
    code = parse_invitation(made["link"]).code
    assert code == bytes.fromhex(made["code"])
    client = broker.peer("alice", registration=Registration(code))
    await client.settle()
    assert client.said == [AuthResult(0)]


@pytest.mark.parametrize(
    "asked",
    [
        b"",
        b"{",
        b"[]",
        b'{"kind": "setup"}',
        b'{"other": 1}',
        b"\xff",
        b'{"memo": 1}',
        b'{"expires_at": -1}',
        b'{"expires_at": 18446744073709551616}',
    ],
)
async def test_what_is_no_request_is_answered_with_an_error(broker: Broker, asked: bytes) -> None:
    (made,) = await ask(broker.core.peer(), asked)
    assert made["error"] not in (None, "", "the invitation could not be stored")
    assert made["code"] == made["link"] == ""


async def test_an_invitation_that_is_not_stored_is_not_given(broker: Broker) -> None:
    broker.core.store.faults.failing_syncs = 1
    (made,) = await ask(broker.core.peer(), b"{}")
    assert made["error"]
    assert made["code"] == ""


async def test_nobody_else_learns_that_it_is_there(broker: Broker) -> None:
    peer = broker.core.peer("stranger")
    answers: list[bytes] = []
    for address in ("nextgraph", "nowhere"):
        peer.answers.clear()
        peer.send(address, b"{}")
        await broker.core.settle()
        answers += [answer.payload for answer in peer.answers]
    assert len(answers) in (0, 2)
    assert answers[:1] == answers[1:]
    assert broker.core.router.undelivered["refused"] == 1
