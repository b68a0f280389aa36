"""An application's actor is reached by every kind of peer, and by other nodes, over sockets."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodes import CLIENT, connect_to, node_config, store_with
from ockam_2024_peer import Ockam2024Peer
from ockam_peer import OckamPeer
from rillnode import (
    Actor,
    ActorError,
    ConfigError,
    Context,
    Message,
    Node,
    NodeFailed,
    RequestError,
)
from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import local
from rillnode.node.config import GrantTable, PeerTable
from rillnode.node.ockam.client.channel import SecureChannel

STRANGER = Identity.from_seed(b"one whom a grant by address names"[:32])


class Greeter(Actor):
    """Says who is greeted."""

    async def receive(self, message: Message, ctx: Context) -> bytes:
        await asyncio.sleep(0)
        if message.payload == b"who":
            return message.principal.encode()
        return b"hello, " + message.payload


@asynccontextmanager
async def greeting(directory: Path, *grants: GrantTable) -> AsyncGenerator[Node]:
    everything = node_config(directory).grants
    config = node_config(directory, *everything, *grants)
    async with Node(config, make_store=store_with()) as node:
        await node.spawn(Greeter, address="greeter", allow=["anonymous", "ockam:*"])
        yield node


@pytest.mark.parametrize("peer_of", [OckamPeer, Ockam2024Peer])
async def test_released_ockam_nodes_reach_it(tmp_path: Path, peer_of: type[OckamPeer]) -> None:
    async with greeting(tmp_path) as node:
        address = node.addresses()["ockam"]
        async with await peer_of.connect(address) as peer:
            answer = await peer.ask("greeter", b"Ada")
            assert answer.payload == b"hello, Ada"
            assert answer.onward_route == (local("me"),)
            # The way of the answer leads back to the actor.
            assert answer.return_route[-1] == local("greeter")
            again = await peer.ask(answer.return_route, b"who")
            assert again.payload == b"anonymous"
            # Ockam has no word for who is not there.
            peer.send("nobody", b"x")
            assert (await peer.ask("greeter", b"Bob")).payload == b"hello, Bob"


async def test_secure_channels_and_other_nodes_reach_it(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(greeting(tmp_path / "far"))
        peers = (
            PeerTable(name="far", noise=far.addresses()["noise"], identity=far.identity),
            PeerTable(name="ockam", ockam=far.addresses()["ockam"]),
        )
        config = replace(node_config(tmp_path / "near"), name="near", peers=peers)
        near = await stack.enter_async_context(Node(config, make_store=store_with()))
        who = f"noise:{near.identity}"
        grant = GrantTable(who=who, addresses="greeter", may=("send",))
        far.reload(replace(far.config, grants=(*far.config.grants, grant)))
        client = await stack.enter_async_context(await connect_to(near))
        for route in ("peer/far;greeter", "peer/ockam;greeter"):
            assert (await client.ask(route, b"Ada")).payload == b"hello, Ada"
        assert (await client.ask("peer/far;greeter", b"who")).payload == who.encode()
        channel = await SecureChannel.open(client, "peer/ockam;SC_listener")
        answer = await channel.ask("greeter", b"who")
        assert answer.payload.startswith(b"ockam:")

        # An actor asks as clients do, and sends what a peer cannot hand on.
        async def asks(message: Message, ctx: Context) -> bytes:
            return (await ctx.ask(message.payload.decode(), b"from afar")).payload

        asking = await near.spawn(asks, address="asks")
        found = await asking.ask(b"peer/far;greeter")
        assert found.payload == b"hello, from afar"
        with pytest.raises(ActorError, match="No such address") as failed:
            await asking.ask(b"peer/far;nobody")
        assert failed.value.code == "actor.failed"


async def test_a_grant_by_address_lets_a_client_connect_and_send_there_only(tmp_path: Path) -> None:
    grant = GrantTable(who=f"noise:{STRANGER.public_hex}", addresses="gr*", may=("send",))
    async with greeting(tmp_path, grant) as node, await connect_to(node, STRANGER) as client:
        assert (await client.ask("greeter", b"Ada")).payload == b"hello, Ada"
        await node.spawn(Greeter, address="other")
        told: list[tuple[str, str]] = []
        for address in ("other", "nobody"):
            with pytest.raises(RequestError) as refused:
                await client.ask(address, b"Ada")
            told.append((refused.value.code, refused.value.text))
        assert told[0] == told[1]
        assert told[0][0] == "address.unknown"
        with pytest.raises(RequestError):
            await client.stream("s")


async def test_the_largest_message_comes_and_goes(tmp_path: Path) -> None:
    async with greeting(tmp_path) as node, await connect_to(node) as client:

        def echo(message: Message, ctx: Context) -> bytes:
            return message.payload

        await node.spawn(echo, address="echoes", allow=[f"noise:{CLIENT.public_hex}"])
        large = bytes(FRAME_BYTES_MAX - 8_192)
        answers = await asyncio.gather(*(client.ask("echoes", large) for _ in range(3)))
        assert [len(one.payload) for one in answers] == [len(large)] * 3
        with pytest.raises(RequestError) as refused:
            await client.ask("echoes", bytes(FRAME_BYTES_MAX - 1_024))
        assert refused.value.code == "message.size"


async def test_a_node_that_does_not_run_spawns_nothing(tmp_path: Path) -> None:
    node = Node(node_config(tmp_path), make_store=store_with())
    for _ in range(2):
        with pytest.raises(ActorError, match="not running"):
            await node.spawn(Greeter)
        async with node:
            with pytest.raises(ConfigError, match="expected noise:HEX"):
                await node.spawn(Greeter, allow=["bob"])
            ref = await node.spawn(Greeter, address="a")
        assert (await ref.wait()).reason == "node"


async def test_an_essential_actor_ends_the_block_where_the_node_says_so(tmp_path: Path) -> None:
    config = replace(node_config(tmp_path), on_fatal="exit")

    def fails(message: Message, ctx: Context) -> None:
        raise OSError("for good")

    async def lives() -> None:
        async with Node(config, make_store=store_with()) as node:
            ref = await node.spawn(fails, address="a", essential=True, restarts_max=0)
            await ref.send(b"x")
            await asyncio.sleep(60.0)

    with pytest.raises(NodeFailed) as ended:
        await lives()
    assert isinstance(ended.value.__cause__, OSError)
