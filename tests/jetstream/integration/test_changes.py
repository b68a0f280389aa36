"""Tests that changes of a stream at one node hold at the others at once."""

from pathlib import Path

import aiohttp
import msgspec
import pytest

from nats_support import NatsServer, needs_nats, on_jetstream
from nodes import CLIENT, connect_to
from rillnode.codecs.errors import RillnodeError
from rillnode.node.config import StreamTable
from rillnode.node.runtime import Node
from store_support import eventually
from streamr_rest_support import Server, streamr_config

pytestmark = [needs_nats, pytest.mark.usefixtures("impatient")]


async def test_permissions_limits_and_removals_hold_at_every_node(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def allowed(node: Node) -> bool:
        """Whether the client may connect to a node and push there."""
        try:
            async with await connect_to(node) as client:
                stream = await client.stream("s")
                await stream.push_many([b'{"a": 1}'] * 10)
        except RillnodeError:
            return False
        return True

    async def run(a: Node, b: Node, http: aiohttp.ClientSession) -> None:
        alice = await Server(a, http).user()
        path = "/streams/" + await alice.make(id="s")
        assert not await allowed(b)
        user = f"noise:{CLIENT.public_hex}"
        body = {"operation": "stream_publish", "user": user}
        given = (await alice.post(f"{path}/permissions", body)).body
        await eventually(lambda: allowed(b))
        assert (await alice.call("DELETE", f"{path}/permissions/{given['id']}")).status == 204

        async def refused() -> bool:
            return not await allowed(b)

        await eventually(refused)
        stream = await b.client.stream("s")
        await a.client.remove("s")

        async def gone() -> bool:
            try:
                await stream.push(b'{"a": 1}')
            except RillnodeError:
                return True
            return False

        await eventually(gone)

    async def limit(a: Node, b: Node) -> None:
        """Set a limit at one node, and end it: the other one enforces it."""
        stream = await b.client.stream("limited")
        await stream.push_many([b"x"] * 10)
        table = StreamTable(name="limited", retain_entries_max=3)
        a.reload(msgspec.structs.replace(a.config, streams=(table,)))

        async def known() -> bool:
            return (await b.client.describe("limited")).retention.entries_max == 3

        await eventually(known)
        await a.stop()
        end = await stream.push_many([b"x"] * 10)

        async def trimmed() -> bool:
            return (await b.client.describe("limited")).partitions[0].first_index == end - 3

        await eventually(trimmed)

    async with (
        Node(on_jetstream(streamr_config(tmp_path / "a"), nats)) as a,
        Node(on_jetstream(streamr_config(tmp_path / "b"), nats)) as b,
        aiohttp.ClientSession() as http,
    ):
        await run(a, b, http)
        await limit(a, b)
