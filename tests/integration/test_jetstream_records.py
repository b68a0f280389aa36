"""What is changed of a stream at one node holds at the others at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import msgspec
import pytest

from nats_support import JetStreamDriver, NatsServer, needs_nats, running_nats
from nodes import CLIENT, connect_to
from rillnode.actors.storage import FindStream, PutStream, RemoveStream, Retention, StreamRecord
from rillnode.actors.storage.jetstream import following
from rillnode.actors.storage.watch import WatchRecords
from rillnode.actors.streams import retention
from rillnode.codecs.errors import RillnodeError
from rillnode.node.config import Config, StoreTable, StreamTable
from rillnode.node.runtime import Node
from store_support import ANSWER_SECONDS, wait_until
from streamr_rest_support import Server, streamr_config

pytestmark = needs_nats


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.1)


def followed(driver: JetStreamDriver) -> WatchRecords:
    operation = WatchRecords()
    driver.store.watch(operation)
    driver.settle(1)
    return operation


def test_a_store_tells_what_others_have_changed(server: NatsServer) -> None:
    with ExitStack() as stack:
        one, other = JetStreamDriver(server.url, "t"), JetStreamDriver(server.url, "t")
        for driver in (one, other):
            stack.callback(driver.store.close)
        made = one.write(PutStream(record=StreamRecord(name="s", owner="me"))).record
        assert followed(other).changed == [made]
        kept = msgspec.structs.replace(made, retention=Retention(entries_max=5))
        one.write(PutStream(record=kept))
        assert followed(other).changed == [kept]
        # What comes while nobody follows is told of later; of one stream the last.
        one.write(RemoveStream(name="s"))
        again = one.write(PutStream(record=StreamRecord(name="s"))).record
        wait_until(lambda: other.read(FindStream(name="s")).record == again)
        told = followed(other)
        assert (told.removed, told.changed) == ([kept], [again])
        # Its own changes are no news.
        mine = other.write(PutStream(record=StreamRecord(name="mine"))).record
        operation = WatchRecords()
        other.store.watch(operation)
        assert followed(one).changed == [mine]
        other.store.close()
        other.settle(1)
        assert operation.error is not None
        assert operation.error.code == "store.closed"


def config_of(directory: Path, server: NatsServer) -> Config:
    store = StoreTable(engine="jetstream", servers=(server.url,), replicas=1)
    return msgspec.structs.replace(streamr_config(directory), name=directory.name, store=store)


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(ANSWER_SECONDS):
        while not await true():
            await asyncio.sleep(0.02)


def test_permissions_limits_and_removals_hold_at_every_node(
    server: NatsServer, tmp_path: Path
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

    async def main() -> None:
        async with (
            Node(config_of(tmp_path / "a", server)) as a,
            Node(config_of(tmp_path / "b", server)) as b,
            aiohttp.ClientSession() as http,
        ):
            await run(a, b, http)
            await limit(a, b)

    asyncio.run(main())
