"""Tests who may make a node dial, and who may send to its peers."""

from pathlib import Path

from nodes import connect_to, node_config
from ockam_peer import OckamPeer
from peer_support import PING, PONG, ListeningPeer, ask, create, granted, linked, until, with_peers
from rillnode.codecs.routing.routes import encode_message, local, parse_route
from rillnode.codecs.routing.stream import (
    CreateRequest,
    ErrorResponse,
    decode_response,
    encode_request,
)
from rillnode.node.config import PeerTable
from rillnode.node.runtime import Node


async def test_nobody_makes_the_node_dial_addresses_of_his_choice(tmp_path: Path) -> None:
    async with ListeningPeer() as far, linked(tmp_path, anonymous=True) as (a, _):
        host, _, port = far.address.partition(":")
        forms = [far.address, f"localhost:{port}", f"{host}:0{port}", f"::ffff:{host}:{port}"]
        async with await OckamPeer.connect(a.addresses()["ockam"]) as peer:
            for form in forms:
                for hop in (f"1#{form}", f"2#{form}", f"3#{form}"):
                    peer.send(parse_route(f"{hop};echo"), b"let me in")
                    # Nor by the way that an answer would take.
                    frame = encode_message((local("stream"),), parse_route(hop), b"bad request")
                    peer.send_frame(frame)
            # An answer to the next message tells that those before it were handled.
            assert (await ask(peer, "peer/plain", PING)).payload == PONG
            assert far.connections == 0
            assert far.address not in a.status()["peers"]

            # One who administers may; others may not use the link that is there then.
            async with await connect_to(a) as client:
                await client.ask(f"1#{far.address}", PING, timeout_seconds=30.0)
            assert far.connections == 1
            peer.send(parse_route(f"1#{far.address}"), b"let me in")
            assert (await ask(peer, "peer/plain", PING)).payload == PONG
            assert len(far.messages) == 1


async def test_the_node_lends_its_name_to_administrators_only(tmp_path: Path) -> None:
    async with linked(tmp_path, anonymous=True) as (a, b):
        request = encode_request(CreateRequest("stolen"))
        async with await OckamPeer.connect(a.addresses()["ockam"]) as peer:
            peer.send(parse_route("peer/b;stream"), request)
            noise = b.addresses()["noise"]
            peer.send(parse_route(f"1#{noise};stream"), request)
            assert (await ask(peer, "peer/plain", PING)).payload == PONG
        assert await b.client.streams() == []
        async with await connect_to(a) as client:
            await create(client, "peer/b")
        assert [info.name for info in await b.client.streams()] == ["s"]


async def test_who_may_use_a_peer_is_configured(tmp_path: Path) -> None:
    async with ListeningPeer() as far:
        closed = PeerTable(name="closed", ockam=far.address, who=())
        config = with_peers(node_config(tmp_path, *granted("anonymous")), closed)
        async with Node(config) as node:
            async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
                peer.send(parse_route("peer/closed"), PING)
                peer.send(parse_route(f"1#{far.address}"), PING)
                await peer.ask("stream", encode_request(CreateRequest("s")))
            assert far.connections == 0
            # Whether there is a peer is for nobody else to know.
            assert node.status()["undelivered"] == {"refused": 1, "unknown_address": 1}


async def test_who_is_dialled_may_do_nothing_for_it(tmp_path: Path) -> None:
    """A peer that answers may also ask: as itself, and it is granted nothing here."""
    async with ListeningPeer(answer=None) as far:
        table = PeerTable(name="far", ockam=far.address)
        config = with_peers(node_config(tmp_path, *granted()), table)
        async with Node(config) as node, await connect_to(node) as client:
            await client.send("peer/far", b"I am here")
            await until(lambda: far.messages)
            route = (local("stream"),)
            far.send(route, encode_request(CreateRequest("mine")))
            await until(lambda: len(far.messages) == 2)
            answer = decode_response(far.messages[1].payload)
            assert answer == ErrorResponse("Invalid request")
            assert await client.streams() == []
