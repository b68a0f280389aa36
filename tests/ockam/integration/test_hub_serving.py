"""Clients answer by an alias at a hub, and from their end of a secure channel."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coroutines import handed_by
from nodes import at_own_ports, connect_to, node_config, store_with
from ockam_peer import OckamPeer
from rillnode import ActorReply, Client, Hub, Message, Node, RillnodeError
from rillnode.codecs.routing.routes import local
from rillnode.node.config import Config, PeerTable
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.node.ockam.client.serving import HubService
from rillnode.node.ockam.config import ChannelTable, OckamListener, ServicesTable

SECONDS = 30.0
SOON = 0.3


async def printed(message: Message) -> bytes:
    return b"printed " + message.payload


def hub_config(directory: Path) -> Config:
    config = at_own_ports(node_config(directory).having(ServicesTable()))
    listener = config.table(OckamListener)
    assert listener is not None
    return config.having(replace(listener, channel=ChannelTable()))


@asynccontextmanager
async def near(directory: Path, hub: Config) -> AsyncGenerator[Client]:
    """A client of another node, whose peer the hub is as a released one would be."""
    listener = hub.table(OckamListener)
    assert listener is not None
    peers = (PeerTable(name="hub", ockam=listener.listen),)
    config = replace(node_config(directory / "near"), peers=peers)
    async with Node(config, make_store=store_with()) as node, await connect_to(node) as client:
        yield client


def with_hub(directory: Path, test: Callable[[Client, Node, Hub], Awaitable[None]]) -> None:
    async def main() -> None:
        config = hub_config(directory / "hub")
        async with (
            asyncio.timeout(2 * SECONDS),
            Node(config, make_store=store_with()) as node,
            near(directory, config) as client,
        ):
            await test(client, node, Hub(client, "peer/hub"))

    asyncio.run(main())


client = handed_by(with_hub)
node = handed_by(with_hub, 1)
hub = handed_by(with_hub, 2)


async def ask(
    node: Node, address: str, payload: bytes = b"page", seconds: float = SECONDS
) -> bytes:
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        peer.send(address, payload)
        return (await peer.receive(seconds)).payload


async def refusal(asked: Awaitable[object]) -> str:
    with pytest.raises(RillnodeError) as caught:
        await asked
    return caught.value.code


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", [None, "printer"])
def test_an_alias_is_there_again_after_its_hub_was_away(tmp_path: Path, name: str | None) -> None:
    async def main() -> None:
        config = hub_config(tmp_path / "hub")
        async with asyncio.timeout(2 * SECONDS), near(tmp_path, config) as client:
            async with Node(config, make_store=store_with()) as node:
                hub = Hub(client, "peer/hub")
                service = await hub.serve(name, printed, lease_seconds=SOON)
                assert (await client.ask(service.route, b"page")).payload == b"printed page"
                before = service.address
            async with Node(config, make_store=store_with()) as node:
                while not await answers(node, service):
                    assert service.open_calls == 0
                assert (await client.ask(service.route, b"page")).payload == b"printed page"
            assert (service.address == before) is (name is not None)
            await service.stop()
            await service.wait()

    async def answers(node: Node, service: HubService) -> bool:
        try:
            return await ask(node, service.address, seconds=SOON) == b"printed page"
        except TimeoutError:
            return False

    asyncio.run(main())


def test_who_asks_is_told_nothing_but_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(message: Message) -> Any:
        match message.payload:
            case b"refuse":
                raise ActorReply("printer.paper", "there is no paper")
            case b"fail":
                raise ValueError("a secret")
            case b"wrong":
                return "printed"
            case b"none":
                return None
            case _:
                return b"%s %s" % (message.principal.encode(), message.onward_route[0].value)

    async def test(client: Client, node: Node, hub: Hub) -> None:
        async with await hub.serve(None, handle) as service:
            for payload in (b"refuse", b"fail", b"wrong", b"none"):
                with pytest.raises(TimeoutError):
                    await ask(node, service.address, payload, SOON)
            async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
                tray = (local(service.address), local("tray"))
                assert (await peer.ask(tray, b"page")).payload == b"anonymous tray"
            await until(lambda: service.open_calls == 0)

    with_hub(tmp_path, test)
    assert [one.msg for one in caplog.records].count("handler_failed") == 2


async def test_beyond_its_open_calls_messages_are_dropped_and_counted(
    client: Client, node: Node, hub: Hub
) -> None:
    done = asyncio.Event()

    async def slow(message: Message) -> bytes:
        await done.wait()
        return b"done"

    service = await hub.serve(None, slow, calls_max=2)
    asking = [asyncio.ensure_future(ask(node, service.address)) for _ in range(2)]
    await until(lambda: service.open_calls == 2)
    with pytest.raises(TimeoutError):
        await ask(node, service.address, seconds=SOON)
    assert service.dropped == 1
    done.set()
    assert await asyncio.gather(*asking) == [b"done", b"done"]
    assert await ask(node, service.address) == b"done"
    # Who stops cancels what does not end.
    done.clear()
    stuck = asyncio.ensure_future(ask(node, service.address, seconds=1.0))
    await until(lambda: service.open_calls == 1)
    await service.stop(timeout_seconds=0.0)
    assert service.open_calls == 0
    with pytest.raises(TimeoutError):
        await stuck


async def test_what_cannot_be_served_is_an_error(client: Client, node: Node, hub: Hub) -> None:
    for name in ("", "a\n", "a" * 513):
        assert await refusal(hub.serve(name, printed)) == "address.invalid"
    for calls in (0, 4_097):
        assert await refusal(hub.serve(None, printed, calls_max=calls)) == "serve.limit"
    for lease in (0.0, 3_601.0):
        assert await refusal(hub.serve(None, printed, lease_seconds=lease)) == "serve.limit"
    nobody = Hub(client, "peer/nobody")
    assert await refusal(nobody.serve(None, printed)) == "address.unknown"
    away = Hub(client, "1#127.0.0.1:1")
    assert await refusal(away.serve(None, printed)) == "peer.unreachable"
    service = await hub.serve(None, printed)
    await client.close()
    assert await refusal(service.wait()) == "client.closed"
    assert await refusal(hub.serve(None, printed)) == "client.closed"


async def test_an_end_of_a_channel_has_addresses_of_its_own(
    client: Client, node: Node, hub: Hub
) -> None:
    calls: list[tuple[str, bytes]] = []

    def note(message: Message) -> None:
        calls.append((message.principal, message.payload))

    async with await SecureChannel.open(client, "peer/hub;SC_listener") as channel:
        async with await channel.serve("notes", note):
            assert await refusal(channel.serve("notes", note)) == "address.taken"
            await channel.send("echo", b"a word", return_address=b"notes")
            await until(lambda: calls)
            assert calls == [(f"ockam:{channel.remote_key}", b"a word")]
        # It is free again, and answers nobody.
        again = await channel.serve("notes", note)
    assert await refusal(again.wait()) == "channel.closed"
    assert await refusal(channel.serve("notes", note)) == "channel.closed"
