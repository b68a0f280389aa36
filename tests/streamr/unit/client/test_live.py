"""Followed partitions, at a server that refuses to let them be followed anew."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.streamr.client import keys as keys_module
from rillnode.node.streamr.client.connection import Connection
from rillnode.node.streamr.client.keys import Keys, KeyTools
from rillnode.node.streamr.client.live import Live
from rillnode.node.testing.contract.base import until

REFUSAL = RequestError("REQUEST_FAILED", "the disk is broken")
FIRST = ("s", 0)


class Server:
    """Answers subscriptions, as a connection tells of it.

    Attributes:
        refusals: what the next ones are refused with.
        asked: the partitions that were asked for.
    """

    def __init__(self) -> None:
        self.live = Live()
        self.refusals: list[RillnodeError] = []
        self.asked: list[tuple[str, int]] = []
        self.live.attach(cast(Connection, self), print)

    async def subscribe(self, stream_id: str, partition: int) -> None:
        self.asked.append((stream_id, partition))
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)

    async def unsubscribe(self, stream_id: str, partition: int) -> None:
        pass


class Reader:
    """Who follows; notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.interruptions = 0

    def message_received(self, message: object) -> None:
        self.told.append(message)

    def interrupted(self) -> None:
        assert "resubscribed" not in self.told
        self.interruptions += 1

    def resubscribed(self) -> None:
        self.told.append("resubscribed")

    def failed(self, error: RillnodeError) -> None:
        self.told.append(error)


def refused(server: Server) -> None:
    server.refusals.append(REFUSAL)
    server.live.connection_opened()


def ended(server: Server) -> None:
    server.live.subscription_ended(*FIRST, REFUSAL)


@pytest.mark.parametrize("end", [refused, ended])
async def test_who_follows_after_a_refusal_is_subscribed_anew(
    end: Callable[[Server], None],
) -> None:
    server, before, after = Server(), Reader(), Reader()
    await server.live.follow(FIRST, before)
    end(server)
    await until(lambda: before.told == [REFUSAL])
    asked = len(server.asked)
    # The first reader may not have left yet.
    await server.live.follow(FIRST, after)
    assert len(server.asked) == asked + 1
    server.live.connection_opened()
    await until(lambda: after.told == ["resubscribed"])
    assert (before.told, after.interruptions) == ([REFUSAL], 1)


async def test_who_follows_while_it_is_refused_is_told_so() -> None:
    server, before, after = Server(), Reader(), Reader()
    await server.live.follow(FIRST, before)
    refused(server)
    await server.live.follow(FIRST, after)
    assert before.told == after.told == [REFUSAL]


async def test_a_partition_that_was_left_and_followed_anew_meanwhile_goes_on() -> None:
    server, before, after = Server(), Reader(), Reader()
    await server.live.follow(FIRST, before)
    refused(server)
    server.live.leave(FIRST, before)
    await server.live.follow(FIRST, after)
    server.live.connection_opened()
    await until(lambda: after.told == ["resubscribed"])


def keys_of(server: Server) -> Keys:
    tools = KeyTools(
        key=EthereumKey(bytes(31) + b"\1"),
        publish=lambda _: None,
        now_ms=lambda: 0,
        entropy=bytes,
        make_rsa_key=lambda: cast(Any, None),
        file=None,
    )
    return Keys(tools, cast(Any, None), server.live)


@pytest.mark.parametrize("end", ["refused", "ended"])
async def test_the_key_stream_is_followed_again_until_that_is_allowed(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "_AGAIN_SECONDS", 0.001)
    server = Server()
    keys = keys_of(server)
    await keys.listen()
    (key_stream,) = server.asked
    server.refusals += [REFUSAL, REFUSAL]
    if end == "refused":
        server.refusals.append(REFUSAL)
        server.live.connection_opened()
    else:
        server.live.subscription_ended(*key_stream, REFUSAL)
    await until(lambda: not server.refusals)
    await keys.listen()
    asked = len(server.asked)
    assert {*server.asked} == {key_stream}
    server.live.connection_opened()
    await until(lambda: len(server.asked) == asked + 1)
    await keys.close()


async def test_the_key_stream_ends_with_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_AGAIN_SECONDS", 0.001)
    server = Server()
    keys = keys_of(server)
    server.refusals.append(REFUSAL)
    with pytest.raises(RequestError):
        await keys.listen()
    await keys.listen()
    gone = TransportError("client.closed", "the client is closed")
    server.refusals += [REFUSAL, gone]
    server.live.subscription_ended(*server.asked[0], REFUSAL)
    await until(lambda: not server.refusals)
    before = len(server.asked)
    server.live.connection_failed(gone)
    await asyncio.sleep(0.01)
    assert len(server.asked) == before
    # One task answers requests, and ends: none is left from where listening was refused.
    await keys.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
