"""Garbage, truncation and slow bytes on every listener, while a good client works on."""

import asyncio
import contextlib
from contextlib import aclosing
from pathlib import Path
from random import Random

import pytest

from nodes import connect_to, node_config
from ockam_peer import OckamPeer
from rillnode.codecs.routing.routes import encode_message, local
from rillnode.codecs.routing.stream import CreateRequest, PullRequest, PushRequest, encode_request
from rillnode.node.runtime import Node

LISTENERS = ("noise", "http")


async def good_client(node: Node, rounds: int) -> None:
    """Push and read back what was pushed, every index once."""
    async with await connect_to(node) as client:
        stream = await client.stream("good")
        async with aclosing(stream.tail(start="start")) as entries:
            for number in range(rounds):
                assert await stream.push(b"%d" % number) == number
                entry = await anext(entries)
                assert (entry.index, entry.data) == (number, b"%d" % number)


async def send_and_leave(address: str, data: bytes, *, drip: bool) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(OSError):
        if drip:
            for at in range(min(len(data), 20)):
                writer.write(data[at : at + 1])
                await writer.drain()
                await asyncio.sleep(0.01)
        else:
            writer.write(data)
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.read(65_536)
    writer.close()


def hostile_inputs(random: Random) -> list[bytes]:
    frame = encode_message(
        (local("stream"),), (local("me"),), encode_request(CreateRequest("hostile"))
    )
    framed = len(frame).to_bytes(2, "big") + frame
    flipped = bytearray(framed)
    flipped[random.randrange(2, len(flipped))] ^= 1 << random.randrange(8)
    return [
        random.randbytes(random.randrange(1, 3_000)),
        b"GET / HTTP/1.1\r\n" + b"x" * 5_000,
        b"\xff\xff" + b"\x00" * 100,
        framed[: random.randrange(1, len(framed))],
        bytes(flipped),
        b"\x01\x00\x00\x00",
        b"",
    ]


@pytest.mark.parametrize("listener", LISTENERS)
async def test_bad_bytes_disturb_nobody(tmp_path: Path, listener: str) -> None:
    random = Random(7)
    async with Node(node_config(tmp_path)) as node:
        address = node.addresses()[listener]
        attacks = [
            send_and_leave(address, data, drip=bool(number % 3 == 0))
            for number in range(20)
            for data in hostile_inputs(random)
        ]
        await asyncio.gather(good_client(node, 300), *attacks)
        assert all(check.ok for check in node.checks())


async def test_requests_with_huge_numbers_cost_little_and_are_answered(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        await (await node.stream("s")).push_many([bytes(1_000)] * 5_000)
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            for _ in range(500):
                peer.send(b"ST_S_0_s", encode_request(PullRequest(1, 0, 2**64 - 1)), back="huge")
            # The answers are 33 MB; nobody takes them yet, and the node serves others.
            await good_client(node, 100)
            for _ in range(500):
                assert len((await peer.receive()).payload) > 60_000


def test_a_peer_that_never_reads_is_bounded_and_harms_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        async with Node(node_config(tmp_path)) as node:
            await (await node.stream("s")).push_many([bytes(1_000)] * 1_000)
            async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
                pull = encode_request(PullRequest(1, 0, 2**32))
                frame = encode_message((local(b"ST_S_0_s"),), (local("me"),), pull)
                flood = (len(frame).to_bytes(2, "big") + frame) * 20_000
                peer.writer.write(flood)  # 1.3 GB of answers, were they all prepared
                await good_client(node, 200)
                for connection in node.status()["listeners"].values():
                    assert connection["links"] <= 2
                peer.writer.transport.abort()
            await good_again(node)

    async def good_again(node: Node) -> None:
        async with await connect_to(node) as client:
            assert len(await (await client.stream("s")).pull(0, 10)) == 10

    asyncio.run(run())


async def test_entries_pushed_before_garbage_in_one_read_are_kept(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        stream = await node.stream("s")
        async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
            peer.send(b"ST_S_0_s", encode_request(PushRequest(1, b"kept")))
            peer.send_frame(b"\xff\xff\xff")
            await peer.reader.read()
        async with aclosing(stream.tail(start="start")) as entries:
            assert (await asyncio.wait_for(anext(entries), 10)).data == b"kept"
