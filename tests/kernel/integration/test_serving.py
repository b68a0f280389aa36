"""Clients that serve addresses of real nodes over Noise links: from far away, over lost links."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coroutines import handed_by
from nodes import CLIENT, at_own_ports, connect_to, node_config
from ockam_peer import OckamPeer
from peer_support import eventually, until, with_peers
from rillnode import ActorReply, Client, Message, Service, connect, connect_blocking
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import ActorError, RequestError, RillnodeError, TransportError
from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import local
from rillnode.node.client.serving import ANSWER_BYTES_MAX
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener, PeerTable
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.node.ockam.config import ChannelTable, OckamListener
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.plug_ins.life import made_below, unreserved
from rillnode.node.testing.contract.proxy import Proxy

PRINTER = Identity.from_seed(b"a printer".ljust(32, b"."))
FAR = Identity.from_seed(b"a node far away".ljust(32, b"."))
STRANGER = Identity.from_seed(b"a stranger".ljust(32, b"."))
FRIEND = ChannelKey(b"a friend's key".ljust(32, b"."))
SECONDS = 30.0

GRANTS = (
    GrantTable(who=f"noise:{CLIENT.public_hex}", streams="*", addresses="*", may=("admin",)),
    GrantTable(who=f"noise:{PRINTER.public_hex}", addresses="printer*", may=("serve",)),
    GrantTable(who=f"noise:{STRANGER.public_hex}", streams="public", may=("pull",)),
    GrantTable(who="anonymous", addresses="printer", may=("send",)),
    GrantTable(who=f"ockam:{FRIEND.public_hex}", addresses="printer", may=("send",)),
)


def config_of(directory: Path, *grants: GrantTable) -> Config:
    config = at_own_ports(node_config(directory, *GRANTS, *grants))
    listener = config.table(OckamListener)
    assert listener is not None
    ockam = msgspec.structs.replace(listener, channel=ChannelTable(), allow_plain=True)
    return config.having(ockam)


@asynccontextmanager
async def running(directory: Path) -> AsyncGenerator[tuple[Node, Client, Client]]:
    """A node, a client that serves, and one that asks."""
    async with (
        asyncio.timeout(60.0),
        Node(config_of(directory)) as node,
        await connect_to(node, PRINTER) as printer,
        await connect_to(node) as client,
    ):
        yield node, printer, client


def with_running(directory: Path, test: Callable[[Node, Client, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running(directory) as parts:
            await test(*parts)

    asyncio.run(main())


node = handed_by(with_running)
printer = handed_by(with_running, 1)
client = handed_by(with_running, 2)


async def work(call: Message) -> bytes:
    return b"printed " + call.payload


def answering(payload: bytes) -> Callable[[Message], bytes]:
    return lambda _: payload


async def ask(client: Client, payload: bytes = b"page", *, to: str = "printer") -> bytes:
    return (await client.ask(to, payload, timeout_seconds=SECONDS)).payload


async def refusal(asked: Awaitable[object]) -> str:
    """The code of the error that is the outcome."""
    with pytest.raises(RillnodeError) as caught:
        await asked
    return caught.value.code


class Held:
    """Answers a call once it may go on."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def answer(self, call: Message) -> bytes:
        self.begun.set()
        await self.go.wait()
        return await work(call)

    async def asked(self, client: Client) -> "asyncio.Future[bytes]":
        """Ask, and come back when the call is held; the future is its answer."""
        self.begun.clear()
        asking = asyncio.ensure_future(ask(client))
        await self.begun.wait()
        return asking


@pytest.fixture
def held() -> Held:
    return Held()


async def begin_to_stop(
    stop: Coroutine[Any, Any, object], client: Client
) -> "asyncio.Future[object]":
    """Begin to stop, and come back when nothing is given to the service any more."""
    stopping = asyncio.ensure_future(stop)
    async with asyncio.timeout(SECONDS):
        while await refusal(client.ask("printer", b"", timeout_seconds=0.5)) == "message.timeout":
            pass
    return stopping


# Handlers ----------------------------------------------------------------------------------------


def test_no_client_takes_an_address_of_the_nodes_own(tmp_path: Path) -> None:
    config = Config(
        name="a",
        data_dir=tmp_path,
        noise=NoiseListener(enabled=False),
        http=HttpListener(enabled=False),
    )

    async def run() -> None:
        with made_below() as addresses:
            async with Node(config) as node:
                addresses |= {*node.observed.router.table}
        assert len(addresses) > 10
        assert unreserved(addresses) == []

    asyncio.run(run())


async def test_a_client_answers_what_is_sent_to_its_address(
    node: Node, printer: Client, client: Client
) -> None:
    calls: list[Message] = []

    async def noted(call: Message) -> bytes:
        calls.append(call)
        await asyncio.sleep(0.01)
        return await work(call)

    async with await printer.serve("printer", noted) as service:
        assert service.address == "printer"
        answers = await asyncio.gather(*(ask(client, b"%d" % n) for n in range(50)))
        assert answers == [b"printed %d" % n for n in range(50)]
        answer = await client.ask("printer;tray", b"page")
        assert answer.return_route == (local("printer"),)
        last = calls[-1]
        assert (last.payload, last.address) == (b"page", "printer")
        assert last.principal == f"noise:{CLIENT.public_hex}"
        assert last.onward_route == (local("tray"),)
        # The node's own application asks, too.
        assert await ask(node.client) == b"printed page"
        assert calls[-1].principal == "node"
    assert await refusal(ask(client)) == "address.unknown"


async def test_each_way_that_a_handler_ends_is_an_outcome(
    node: Node, printer: Client, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def no_paper(_: Message) -> bytes:
        raise ActorReply("printer.paper", "there is no paper")

    async def late(_: Message) -> bytes:
        await asyncio.sleep(0.3)
        return b"late"

    def wrong(_: Message) -> Any:
        return "printed"

    def failing(_: Message) -> bytes:
        raise ValueError("a secret")

    handlers: dict[bytes, Callable[[Message], Any]] = {
        b"async": work,
        b"plain": lambda call: bytearray(b"printed " + call.payload),
        b"refuse": no_paper,
        b"late": late,
        b"wrong": wrong,
        b"fail": failing,
        b"none": lambda _: None,
        b"large": lambda _: bytes(ANSWER_BYTES_MAX),
        b"too large": lambda _: bytes(ANSWER_BYTES_MAX + 1),
    }
    await printer.serve("printer", lambda call: handlers[call.payload](call))
    assert await ask(client, b"async") == b"printed async"
    assert await ask(client, b"plain") == b"printed plain"
    with pytest.raises(RequestError, match="there is no paper") as caught:
        await ask(client, b"refuse")
    assert caught.value.code == "printer.paper"
    for payload in (b"late", b"none"):
        with pytest.raises(ActorError) as timed_out:
            await client.ask("printer", payload, timeout_seconds=0.1)
        assert timed_out.value.code == "message.timeout"
    with caplog.at_level(logging.WARNING):
        for payload in (b"wrong", b"fail"):
            with pytest.raises(RequestError) as failed:
                await ask(client, payload)
            assert failed.value.code == "actor.failed"
            assert "secret" not in failed.value.text
    assert [one.msg for one in caplog.records] == ["handler_failed"] * 2
    assert len(await ask(client, b"large")) == ANSWER_BYTES_MAX
    assert await refusal(ask(client, b"too large")) == "message.size"
    await asyncio.sleep(0.3)
    assert await ask(client, b"plain") == b"printed plain"


async def test_a_message_as_large_as_can_be_costs_nobody_else_anything(
    node: Node, printer: Client, client: Client
) -> None:
    await printer.serve("printer", lambda call: b"%d" % len(call.payload))
    assert await ask(client, bytes(4_000_000)) == b"4000000"
    assert await refusal(ask(client, bytes(FRAME_BYTES_MAX - 64))) == "message.size"
    assert await refusal(ask(client, bytes(FRAME_BYTES_MAX))) == "message.size"
    many = await asyncio.gather(
        *(client.ask("printer", bytes(4_000_000), timeout_seconds=SECONDS) for _ in range(12)),
        return_exceptions=True,
    )
    codes = Counter(one.code if isinstance(one, RillnodeError) else "" for one in many)
    assert set(codes) <= {"", "actor.busy"}
    assert await ask(client, b"page") == b"4"


async def test_a_route_of_a_hundred_hops_costs_nobody_else_anything(
    node: Node, printer: Client, client: Client
) -> None:
    await printer.serve("printer", work)
    assert await refusal(ask(client, to=";".join(["printer"] * 100))) == "codec.limit"
    async with await OckamPeer.connect(node.addresses()["ockam"]) as peer:
        hop = b"\x00\x07printer"
        peer.send_frame(b"\x01" + b"\x64" + 100 * hop + b"\x00" + b"\x04page")
        with pytest.raises(asyncio.IncompleteReadError):  # it is told by the end of its link
            await peer.receive()
    # As many as there may be are no matter: what follows is the handler's.
    assert await ask(client, to=";".join(["printer"] * 60)) == b"printed page"


async def test_a_handler_that_never_returns_costs_its_own_callers_only(
    node: Node, printer: Client, client: Client
) -> None:
    async def never(call: Message) -> bytes | None:
        if call.payload == b"page":
            return b"printed"
        await asyncio.Event().wait()
        return None

    service = await printer.serve("printer", never, calls_max=2)
    with pytest.raises(ActorError) as late:
        await client.ask("printer", b"stuck", timeout_seconds=0.1)
    assert late.value.code == "message.timeout"
    assert await ask(client) == b"printed"
    stuck = asyncio.ensure_future(ask(client, b"stuck"))
    await until(lambda: service.open_calls == 2)
    assert await refusal(ask(client)) == "actor.busy"
    await service.stop(timeout_seconds=0.1)
    assert await refusal(stuck) == "call.lost"


async def test_beyond_its_open_calls_a_service_is_busy(
    node: Node, printer: Client, client: Client
) -> None:
    go = asyncio.Event()

    async def held(call: Message) -> bytes:
        await go.wait()
        return b"printed"

    service = await printer.serve("printer", held, calls_max=3)
    waiting = [asyncio.ensure_future(ask(client)) for _ in range(3)]
    await until(lambda: service.open_calls == 3)
    with pytest.raises(RequestError) as caught:
        await ask(client)
    assert (caught.value.code, caught.value.retryable) == ("actor.busy", True)
    go.set()
    assert await asyncio.gather(*waiting) == [b"printed"] * 3
    assert await ask(client) == b"printed"


# Who may -----------------------------------------------------------------------------------------


async def test_what_may_not_be_served_is_refused(
    node: Node, printer: Client, client: Client
) -> None:
    assert await refusal(printer.serve("other", work)) == "address.unknown"
    assert await refusal(client.serve("stream", work)) == "address.reserved"
    assert await refusal(client.serve("a b", work)) == "address.invalid"
    assert await refusal(client.serve("a\ud800", work)) == "address.invalid"
    for calls_max in (0, -1, 4_097):
        serving = client.serve("printer", work, calls_max=calls_max)
        assert await refusal(serving) == "serve.limit"
    for lease in (-1.0, 3_601.0, float("inf")):
        serving = client.serve("printer", work, lease_seconds=lease)
        assert await refusal(serving) == "serve.limit"
    assert not client._session.messages._keepers  # pyright: ignore[reportPrivateUsage]
    await printer.serve("printer", work)
    assert await refusal(client.serve("printer", work)) == "address.taken"
    assert await refusal(printer.serve("printer", work)) == "address.taken"
    async with await connect_to(node, STRANGER) as stranger:
        assert await refusal(ask(stranger)) == "address.unknown"
        assert await refusal(stranger.serve("printer", work)) == "address.unknown"
    assert await ask(client) == b"printed page"
    for number in range(99):
        await printer.serve(f"printer-{number}", work)
    assert await refusal(printer.serve("printer-99", work)) == "serve.limit"
    assert await ask(client, to="printer-98") == b"printed page"


async def test_a_right_that_is_taken_back_ends_the_service(
    node: Node, printer: Client, client: Client
) -> None:
    service = await printer.serve("printer", work)
    grants = tuple(one for one in node.config.grants if PRINTER.public_hex not in one.who)
    still = GrantTable(who=f"noise:{PRINTER.public_hex}", streams="s", may=("pull",))
    node.reload(msgspec.structs.replace(node.config, grants=(*grants, still)))
    assert await refusal(service.wait()) == "serve.revoked"
    assert await refusal(ask(client)) == "address.unknown"


async def test_an_address_that_nobody_waits_for_any_more_is_given_back(
    node: Node, printer: Client, client: Client
) -> None:
    for turns in range(6):
        serving = asyncio.ensure_future(printer.serve("printer", work))
        for _ in range(turns):
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait((serving,))
        assert serving.cancelled()
        await printer.ask("echo", b"all that it has sent has come")
        service = await eventually(lambda: client.serve("printer", work))
        assert await ask(client) == b"printed page"
        await service.stop()


# Ways --------------------------------------------------------------------------------------------


def test_a_served_address_is_reached_by_every_way(tmp_path: Path) -> None:
    async def main() -> None:
        knows = GrantTable(who=f"noise:{FAR.public_hex}", addresses="printer", may=("send",))
        async with (
            asyncio.timeout(60.0),
            Node(config_of(tmp_path / "hub", knows)) as hub,
            await connect_to(hub, PRINTER) as printer,
        ):
            addresses = hub.addresses()
            peers = (
                PeerTable(name="hub", noise=addresses["noise"], identity=hub.identity),
                PeerTable(name="plain", ockam=addresses["ockam"]),
            )
            far_config = with_peers(config_of(tmp_path / "far"), *peers)
            async with Node(far_config, identity=FAR) as far:
                await reached(hub, far, printer)

    async def reached(hub: Node, far: Node, printer: Client) -> None:
        principals: list[str] = []

        def noted(call: Message) -> bytes:
            principals.append(call.principal.partition(":")[0])
            return b"printed " + call.payload

        await printer.serve("printer", noted)
        async with await connect_to(far) as client:
            # Through another node, by its own link and by Ockam's.
            assert await ask(client, to="peer/hub;printer") == b"printed page"
            assert await ask(client, to="peer/plain;printer") == b"printed page"
            # End to end through that node.
            async with await SecureChannel.open(
                client, "peer/plain;SC_listener", key=FRIEND
            ) as channel:
                answer = await channel.ask("printer", b"page", timeout_seconds=SECONDS)
                assert answer.payload == b"printed page"
                async with channel.mailbox() as box:
                    await channel.send("echo", b"unasked", return_address=box.address)
                    assert (await anext(box)).payload == b"unasked"
            assert await refusal(ask(client, to="peer/hub;printer-2")) == "address.unknown"
        # A released Ockam peer.
        async with await OckamPeer.connect(hub.addresses()["ockam"]) as peer:
            wire = await peer.ask("printer", b"page")
            assert (wire.payload, wire.return_route) == (b"printed page", (local("printer"),))
            # By the alias of somebody who hands on to the address.
            alias = (await peer.ask("forwarding", b"alias")).return_route[0]
            async with await connect_to(hub) as other:
                asking = asyncio.ensure_future(ask(other, to=alias.value.decode()))
                message = await peer.receive()
                peer.send((local("printer"),), message.payload)
                handed = await peer.receive()
                peer.send(message.return_route, handed.payload)
                assert await asking == b"printed page"
        assert principals == ["noise", "anonymous", "ockam", "anonymous", "anonymous"]

    asyncio.run(main())


async def test_an_address_farther_on_is_served_through_the_nodes_between(tmp_path: Path) -> None:
    knows = GrantTable(who=f"noise:{FAR.public_hex}", addresses="printer", may=("serve",))
    hub_config = config_of(tmp_path / "hub", knows)
    async with asyncio.timeout(60.0):
        hub = Node(hub_config)
        await hub.start()
        peer = PeerTable(name="hub", noise=hub.addresses()["noise"], identity=hub.identity)
        far_config = with_peers(config_of(tmp_path / "far"), peer)
        async with Node(far_config, identity=FAR) as far:
            client = await connect_to(far)
            service = await client.serve("printer", work, at="peer/hub", lease_seconds=1.5)
            async with await connect_to(hub) as desk:
                assert await ask(desk) == b"printed page"
                await asyncio.sleep(2.0)  # the lease is renewed
                answers = await asyncio.gather(*(ask(desk, b"%d" % n) for n in range(50)))
                assert answers == [b"printed %d" % n for n in range(50)]
                # And after the hub was restarted.
                await hub.stop()
                hub = Node(hub_config)
                await hub.start()
                assert await eventually(lambda: ask(desk)) == b"printed page"
                # A client that is gone is missed, though its node's link is there still.
                begun = asyncio.Event()

                async def held(message: Message) -> bytes:
                    begun.set()
                    await asyncio.sleep(60.0)
                    return b""

                await service.stop()
                assert await refusal(ask(desk)) == "address.unknown"
                await client.serve("printer", held, at="peer/hub", lease_seconds=1.5)
                asking = asyncio.ensure_future(ask(desk))
                await begun.wait()
                await client._session.close()  # pyright: ignore[reportPrivateUsage]
                assert await refusal(asking) == "call.lost"
                assert await refusal(ask(desk)) == "address.unknown"
                serving = desk.serve("printer-x", work, at="peer/none")
                assert await refusal(serving) == "address.unknown"
            await hub.stop()


# Lost links and restarts -------------------------------------------------------------------------


async def test_a_service_lasts_over_lost_links_and_its_open_calls_are_lost(
    tmp_path: Path, held: Held
) -> None:
    async with (
        asyncio.timeout(60.0),
        Node(config_of(tmp_path)) as node,
        Proxy(node.addresses()["noise"]) as proxy,
        await connect_to(node, PRINTER, through=proxy.address) as printer,
        await connect_to(node) as client,
    ):
        service = await printer.serve("printer", held.answer)
        asking = await held.asked(client)
        await proxy.take_away()
        assert await refusal(asking) == "call.lost"
        with pytest.raises(RequestError) as caught:
            await ask(client)
        assert (caught.value.code, caught.value.retryable) == ("peer.unreachable", True)
        # Nobody else has it meanwhile.
        assert await refusal(client.serve("printer", work)) == "address.taken"
        await proxy.bring_back()
        held.go.set()
        assert await eventually(lambda: ask(client)) == b"printed page"
        assert not service.open_calls
        for _ in range(5):
            proxy.cut()
            assert await eventually(lambda: ask(client)) == b"printed page"


async def test_a_lease_that_is_over_gives_the_address_away(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60.0),
        Node(config_of(tmp_path)) as node,
        Proxy(node.addresses()["noise"]) as proxy,
        await connect_to(node, PRINTER, through=proxy.address) as printer,
        await connect_to(node) as client,
    ):
        service = await printer.serve("printer", work, lease_seconds=0.2)
        await proxy.take_away()

        async def unknown() -> None:
            assert await refusal(ask(client)) == "address.unknown"

        async with asyncio.timeout(SECONDS):
            while await refusal(ask(client)) != "address.unknown":
                await asyncio.sleep(0.05)
        await unknown()
        await client.serve("printer", answering(b"by another"))
        await proxy.bring_back()
        assert await refusal(service.wait()) == "address.taken"
        assert await ask(client) == b"by another"


async def test_a_service_is_there_again_after_the_node_was_restarted(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    async with asyncio.timeout(60.0):
        first = Node(config)
        await first.start()
        printer, client = await connect_to(first, PRINTER), await connect_to(first)
        service = await printer.serve("printer", work)
        assert await ask(client) == b"printed page"
        await first.stop()
        async with Node(config), printer, client:
            assert await eventually(lambda: ask(client)) == b"printed page"
            await service.stop()
            assert await refusal(ask(client)) == "address.unknown"
        await service.wait()


async def test_a_client_without_another_link_is_told_that_its_service_has_ended(
    node: Node, printer: Client, client: Client
) -> None:
    url = f"noise://{node.addresses()['noise']}"
    once = await connect(url, identity=PRINTER, node_identity=node.identity, reconnect=False)
    service = await once.serve("printer", work, lease_seconds=0.0)
    once._session._link.close("cut")  # type: ignore[union-attr]  # pyright: ignore
    assert await refusal(service.wait()) == "link.closed"
    assert await refusal(once.serve("printer", work)) == "link.closed"
    await once.close()
    service = await eventually(lambda: printer.serve("printer", work))
    await printer.close()
    await service.wait()
    assert await refusal(printer.serve("printer", work)) == "client.closed"
    with pytest.raises(TransportError):
        await anext(printer.mailbox())


# Ends --------------------------------------------------------------------------------------------


async def test_who_stops_answers_what_is_open_and_is_given_nothing_new(
    node: Node, printer: Client, client: Client, held: Held
) -> None:
    service = await printer.serve("printer", held.answer)
    asking = await held.asked(client)
    stopping = await begin_to_stop(service.stop(), client)
    assert await refusal(ask(client)) == "address.unknown"
    assert not stopping.done()
    held.go.set()
    assert await asking == b"printed page"
    await stopping
    await service.wait()
    # What does not end in time is lost.
    held.go.clear()
    service = await printer.serve("printer", held.answer, calls_max=1)
    asking = await held.asked(client)
    await service.stop(timeout_seconds=0.05)
    assert await refusal(asking) == "call.lost"


async def test_a_node_that_stops_has_open_calls_answered(
    node: Node, printer: Client, client: Client, held: Held
) -> None:
    service = await printer.serve("printer", held.answer)
    asking = await held.asked(client)
    stopping = await begin_to_stop(node.stop(), client)
    with pytest.raises(RequestError) as caught:
        await ask(client)
    assert (caught.value.code, caught.value.retryable) == ("node.draining", True)
    held.go.set()
    assert await asking == b"printed page"
    await stopping
    await service.stop(timeout_seconds=0.0)


async def test_a_closed_client_answers_first(node: Node, printer: Client, client: Client) -> None:
    begun = asyncio.Event()

    async def slow(call: Message) -> bytes:
        begun.set()
        await asyncio.sleep(0.1)
        return b"printed"

    service = await printer.serve("printer", slow)
    asking = asyncio.ensure_future(ask(client))
    await begun.wait()
    await printer.close()
    assert await asking == b"printed"
    await service.wait()
    with pytest.raises(TransportError):
        await printer.ask("echo", b"x")


async def test_the_nodes_own_application_serves_too(tmp_path: Path) -> None:
    async with asyncio.timeout(60.0), Node(config_of(tmp_path)) as node:
        begun = asyncio.Event()

        async def slow(message: Message) -> bytes:
            begun.set()
            await asyncio.sleep(0.1)
            return await work(message)

        await node.client.serve("printer", slow)
        async with await connect_to(node) as client:
            assert await ask(client) == b"printed page"
            begun.clear()
            asking = asyncio.ensure_future(ask(client))
            await begun.wait()
            await node.stop()
            assert await asking == b"printed page"


# Groups ------------------------------------------------------------------------------------------


async def test_a_group_is_restarted_one_by_one_and_no_call_fails(
    node: Node, printer: Client, client: Client
) -> None:
    served: Counter[int] = Counter()

    async def replica(number: int) -> tuple[Client, Service]:
        async def one(call: Message) -> bytes:
            served[number] += 1
            await asyncio.sleep(0.001)
            return b"done"

        own = await connect_to(node, PRINTER)
        return own, await own.serve("printer", one, group=True)

    replicas = [await replica(number) for number in range(3)]
    outcomes: list[bytes] = []

    async def asking() -> None:
        while not all(served[number] for number in range(6)):
            outcomes.append(await ask(client))

    async def restarting() -> None:
        for number in range(3):
            await asyncio.sleep(0.05)
            own, service = replicas[number]
            await service.stop()
            await own.close()
            replicas[number] = await replica(number + 3)

    await asyncio.gather(restarting(), *(asking() for _ in range(8)))
    assert set(outcomes) == {b"done"}
    for own, _ in replicas:
        await own.close()
    assert await refusal(ask(client)) == "address.unknown"


async def test_one_client_may_serve_an_address_twice(
    node: Node, printer: Client, client: Client
) -> None:
    first = await printer.serve("printer", answering(b"first"), group=True)
    await printer.serve("printer", answering(b"second"), group=True)
    assert {await ask(client) for _ in range(4)} == {b"first", b"second"}
    await first.stop()
    assert {await ask(client) for _ in range(4)} == {b"second"}


# Without a loop ----------------------------------------------------------------------------------


async def test_the_blocking_client_serves_too(tmp_path: Path) -> None:
    def talk(node: Node) -> None:
        url = f"noise://{node.addresses()['noise']}"
        with (
            connect_blocking(url, identity=PRINTER, node_identity=node.identity) as printer,
            connect_blocking(url, identity=CLIENT, node_identity=node.identity) as client,
        ):
            with printer.serve("printer", lambda call: b"printed " + call.payload) as service:
                assert service.address == "printer"
                assert client.ask("printer", b"page").payload == b"printed page"
            service.wait()
            with pytest.raises(RequestError):
                client.ask("printer", b"page")

    async with Node(config_of(tmp_path)) as node:
        await asyncio.to_thread(talk, node)


async def test_blocking_handlers_run_all_at_once_and_keep_no_thread_of_the_loop(
    tmp_path: Path,
) -> None:
    """A handler may wait for the client's link, which must not wait for a thread then."""
    calls = 40  # more than asyncio has threads of its own
    together = threading.Barrier(calls, timeout=20.0)

    def handler(_: Message) -> bytes:
        return b"%d" % together.wait()

    async def ask_all(client: Client) -> set[bytes]:
        answers = await asyncio.gather(*(client.ask("printer", b"page") for _ in range(calls)))
        return {answer.payload for answer in answers}

    async with Node(config_of(tmp_path)) as node, await connect_to(node) as client:
        url = f"noise://{node.addresses()['noise']}"
        printer = await asyncio.to_thread(
            connect_blocking, url, identity=PRINTER, node_identity=node.identity
        )
        await asyncio.to_thread(printer.serve, "printer", handler)
        assert await ask_all(client) == {b"%d" % number for number in range(calls)}
        await asyncio.to_thread(printer.close)
