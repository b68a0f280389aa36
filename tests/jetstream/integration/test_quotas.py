"""Quotas of a node count what their principals have made, and push, at other nodes."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from nats_support import NatsServer, needs_nats, on_jetstream
from nodes import CLIENT, connect_to, node_config
from rillnode.actors.core.streams import retention
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client
from rillnode.node.config import Config, QuotaTable
from rillnode.node.runtime import Node
from store_support import eventually

pytestmark = needs_nats


def config_of(directory: Path, nats: NatsServer) -> Config:
    quota = QuotaTable(who=f"noise:{CLIENT.public_hex}", streams_max=3, bytes_max=1_000)
    config = on_jetstream(node_config(directory), nats)
    return msgspec.structs.replace(config, quotas=(quota,))


async def refusal(client: Client, name: str) -> str:
    """Why a stream cannot be made; empty where it can."""
    try:
        await client.stream(name)
    except RillnodeError as error:
        return error.code
    return ""


async def pushed(client: Client, name: str, size: int) -> str:
    stream = await client.stream(name)
    try:
        await stream.push(bytes(size))
    except RillnodeError as error:
        return error.code
    return ""


def test_streams_and_bytes_of_other_nodes_count(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "RELIST_SECONDS", 0.1)

    async def main() -> None:
        async with (
            Node(config_of(tmp_path / "a", nats)) as a,
            Node(config_of(tmp_path / "b", nats)) as b,
            await connect_to(a) as near,
            await connect_to(b) as far,
        ):
            for name, client in (("a", near), ("b", far), ("c", near)):
                await client.stream(name)

            async def full() -> bool:
                for client, name in ((near, "near"), (far, "far")):
                    refused = await refusal(client, name)
                    if not refused:
                        await client.remove(name)
                        return False
                    assert refused == "quota.streams"
                return True

            await eventually(full)
            # What is removed at one node makes room at the other.
            await near.remove("b")
            await eventually(lambda: made(far, "e"))
            # What was pushed at one node only is known at the other, which has not touched it.
            assert await pushed(near, "a", 990) == ""

            async def too_much() -> bool:
                return await pushed(far, "c", 20) == "quota.bytes"

            await eventually(too_much)
            await near.remove("a")

            async def room() -> bool:
                return await pushed(far, "c", 20) == ""

            await eventually(room)

    async def made(client: Client, name: str) -> bool:
        return await refusal(client, name) == ""

    asyncio.run(main())
