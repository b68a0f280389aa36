"""Nodes that send to each other: peers, TCP hops, lost links, loops."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from fake_client import Screen
from nodes import CLIENT, connect_to, node_config
from peer_support import (
    PING,
    PONG,
    ListeningPeer,
    create,
    eventually,
    granted,
    linked,
    until,
    with_peers,
)
from rillnode.codecs.errors import ActorError, RequestError
from rillnode.codecs.limits import ROUTE_HOPS_MAX
from rillnode.codecs.routing.dialects import Dialect
from rillnode.codecs.routing.routes import local
from rillnode.codecs.routing.stream import (
    PushConfirm,
    PushRequest,
    Status,
    decode_response,
    encode_request,
)
from rillnode.node.cli import main
from rillnode.node.client import connect_blocking
from rillnode.node.config import DiallingTable, NoiseListener, PeerTable
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node


@pytest.mark.parametrize("by", ["name", "address"])
@pytest.mark.parametrize(("peer", "dialect"), [("b", "u16"), ("plain", "u16"), ("plain", "2024")])
async def test_a_client_reaches_workers_of_a_peer(
    tmp_path: Path, peer: str, dialect: Dialect, by: str
) -> None:
    async with linked(tmp_path, dialect=dialect) as (a, b), await connect_to(a) as client:
        address = b.addresses()["noise" if peer == "b" else "ockam"]
        stream = await create(client, f"peer/{peer}" if by == "name" else f"1#{address}")
        prefix = b"NX_C_" if peer == "b" else b"TCP_C_"
        assert stream[0].value.startswith(prefix)
        for number in range(3):  # the answer's route is a way to the stream
            request = encode_request(PushRequest(number, b"%d" % number))
            answer = await client.ask(stream, request, timeout_seconds=30.0)
            confirm = PushConfirm(number, Status.OK, number)
            assert decode_response(answer.payload) == confirm
        pulled = await (await b.stream("s")).pull()
        assert [entry.data for entry in pulled] == [b"0", b"1", b"2"]
        assert await client.ping(peer, timeout_seconds=30.0) > 0


async def test_one_connection_serves_many_messages_to_one_address(tmp_path: Path) -> None:
    async with ListeningPeer() as far, Node(node_config(tmp_path, *granted())) as node:
        async with await connect_to(node) as client:
            route = f"1#{far.address};echo"
            payloads = [b"%d" % number for number in range(20)]
            asks = [client.ask(route, payload, timeout_seconds=30.0) for payload in payloads]
            answers = await asyncio.gather(*asks)
            assert {answer.payload for answer in answers} == {PONG}
            assert len({answer.return_route for answer in answers}) == 1
            await client.ask(route, b"later", timeout_seconds=30.0)
        assert far.connections == 1
        assert [message.payload for message in far.messages] == [*payloads, b"later"]
        assert {message.onward_route for message in far.messages} == {(local("echo"),)}
        (row,) = node.status()["peers"].values()
        assert (row["address"], row["state"], row["links"]) == (far.address, "open", 1)


async def test_a_message_too_large_for_the_next_link_is_told_of(tmp_path: Path) -> None:
    async with ListeningPeer() as far, Node(node_config(tmp_path, *granted())) as node:
        async with await connect_to(node) as client:
            with pytest.raises(RequestError, match="65,000") as raised:
                await client.ask(f"1#{far.address};echo", bytes(65_000), timeout_seconds=30.0)
            assert raised.value.code == "message.size"
        assert node.status()["undelivered"] == {"too_large": 1}
        assert far.messages == []


async def test_an_unused_connection_is_closed_and_dialled_again(tmp_path: Path) -> None:
    dialling = DiallingTable(unused_close_seconds=1.5)
    config = msgspec.structs.replace(node_config(tmp_path, *granted()), dialling=dialling)
    async with ListeningPeer() as far, Node(config) as node, await connect_to(node) as client:
        await client.ask(f"1#{far.address}", PING, timeout_seconds=30.0)
        await until(lambda: not node.status()["peers"][far.address]["links"])
        row = node.status()["peers"][far.address]
        assert (row["state"], row["last_error"]) == ("idle", "")
        await client.ask(f"1#{far.address}", PING, timeout_seconds=30.0)
        assert far.connections == 2


async def test_a_dead_target_is_told_and_not_dialled_for_each_message(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path, *granted())) as node:
        async with await connect_to(node) as client:
            for _ in range(3):
                with pytest.raises(RequestError, match="nothing listens on") as caught:
                    await client.ask("1#127.0.0.1:1;echo", b"x", timeout_seconds=30.0)
                assert caught.value.code == "peer.unreachable"
            with pytest.raises(RequestError, match="No such address"):
                await client.ask("peer/nobody;echo", b"x")
        assert node.status()["undelivered"]["peer_unreachable"] == 3


@pytest.mark.parametrize("peer", ["b", "plain"])
async def test_a_restarted_peer_is_reached_again(tmp_path: Path, peer: str) -> None:
    async with linked(tmp_path) as (a, b), await connect_to(a) as client:
        await client.ping(peer, timeout_seconds=30.0)
        await b.stop()
        with pytest.raises((RequestError, ActorError)):
            await client.ping(peer, timeout_seconds=0.5)
        async with Node(b.config):
            await eventually(lambda: client.ping(peer, timeout_seconds=2.0))
            status = a.status()["peers"][peer]
            assert (status["state"], status["links"]) == ("open", 1)


async def test_a_peer_of_another_identity_is_no_peer(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path / "b")) as b:
        table = PeerTable(name="b", noise=b.addresses()["noise"], identity="0a" * 32)
        config = with_peers(node_config(tmp_path / "a", *granted()), table)
        async with Node(config) as a, await connect_to(a) as client:
            with pytest.raises(RequestError) as caught:
                await client.ping("b", timeout_seconds=30.0)
            assert caught.value.code == "peer.unreachable"
            assert "wrong_node" in a.status()["peers"]["b"]["last_error"]


async def test_a_node_stops_while_it_dials(tmp_path: Path) -> None:
    async with ListeningPeer(answer=None) as far:  # takes the connection and says nothing
        table = PeerTable(name="silent", noise=far.address, identity="0a" * 32)
        noise = NoiseListener(listen="127.0.0.1:0", handshake_seconds_max=3_600.0)
        config = with_peers(node_config(tmp_path, *granted()), table, noise=noise)
        async with Node(config) as node:
            await until(lambda: far.connections)
            ask = asyncio.ensure_future(
                node.client.ask("peer/silent", PING, timeout_seconds=3_600.0)
            )
            await until(lambda: node.status()["peers"]["silent"]["waiting"])
        with pytest.raises(RequestError, match="No link to silent"):
            await ask


async def test_the_command_line_sends_and_lists(tmp_path: Path) -> None:
    def command(node: Node, *argv: str) -> tuple[int, str]:
        screen = Screen()
        connection = ("--node", f"noise://{node.addresses()['noise']}", "--key", str(key))
        identity = ("--node-identity", node.identity)
        return main([*argv, *connection, *identity], screen.terminal), screen.out

    key = tmp_path / "client.key"
    write_key(key, CLIENT)
    async with linked(tmp_path) as (a, _):
        argv = ("route", "ask", "peer/plain", "--payload-hex", "00", "--wait", "30")
        code, out = await asyncio.to_thread(command, a, *argv)
        assert (code, json.loads(out)["payload"]) == (0, PONG.hex())
        ping = await asyncio.to_thread(command, a, "peer", "ping", "b", "--wait", "30")
        assert ping[0] == 0
        code, out = await asyncio.to_thread(command, a, "peer", "ls")
        rows = {row["name"]: row for row in map(json.loads, out.splitlines())}
        assert code == 0
        assert [rows[name]["state"] for name in ("b", "plain")] == ["open", "open"]
        code, out = await asyncio.to_thread(command, a, "peer", "ping", "nobody")
        assert (code, out) == (1, "")


async def test_the_blocking_client_sends_too(tmp_path: Path) -> None:
    def talk(node: Node) -> None:
        url = f"noise://{node.addresses()['noise']}"
        with connect_blocking(url, identity=CLIENT, node_identity=node.identity) as client:
            client.send("peer/plain", b"not waited for")
            assert client.ask("peer/plain", PING, timeout_seconds=30.0).payload == PONG
            with client.mailbox() as box:
                client.send("peer/plain;echo", b"unasked", return_address=box.address)
                assert next(box).payload == b"unasked"
                assert box.dropped == 0

    async with linked(tmp_path) as (a, _):
        await asyncio.to_thread(talk, a)


async def test_a_message_ends_where_its_route_ends(tmp_path: Path) -> None:
    """Two nodes that hand on to each other: each step takes a hop off, so nothing goes on."""
    async with (
        Node(node_config(tmp_path / "a")) as a,
        Node(node_config(tmp_path / "b")) as b,
        await connect_to(a) as client,
    ):
        there, back = (f"1#{node.addresses()['ockam']}" for node in (b, a))

        def steps() -> int:
            return sum(_handled_by_peers(node) for node in (a, b))

        def around(hops: int) -> str:
            return ";".join([there, back] * (hops // 2))

        await client.ask(around(2), PING, timeout_seconds=30.0)
        before = steps()
        answer = await client.ask(around(60), PING, timeout_seconds=30.0)
        assert answer.payload == PONG
        assert len(answer.return_route) == 60
        assert steps() - before == 60

        # As long as a route can be; its return route is full before it ends.
        await client.send(around(ROUTE_HOPS_MAX), b"round and round", return_address=b"x")
        await until(lambda: steps() - before >= 60 + ROUTE_HOPS_MAX)
        await client.ask(around(2), PING, timeout_seconds=30.0)
        assert steps() - before == 60 + ROUTE_HOPS_MAX + 2


def _handled_by_peers(node: Node) -> int:
    actors: dict[str, dict[str, int]] = node.status()["actors"]
    return sum(stats["handled"] for name, stats in actors.items() if name.endswith(".PeerActor"))
