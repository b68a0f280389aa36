"""Dialling in the background, on the machine's own loopback."""

import asyncio
from collections.abc import Callable

import pytest

from link_support import CLIENT, NODE, ManualClock
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.framing import U16Framing
from rillnode.node.testing.contract.base import until as until_soon
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports.clock import SystemClock
from rillnode.transports.dialer import TcpDialer
from rillnode.transports.links import NOISE_LIMITS, OCKAM_LIMITS, LinkLimits
from rillnode.transports.tcp import TcpListener, listen

pytestmark = pytest.mark.usefixtures("kind_of_loop")


async def until(condition: Callable[[], object]) -> None:
    await until_soon(condition, seconds=30.0)


def no_failure(error: RillnodeError) -> None:
    raise AssertionError(error)


def dialer(limits: LinkLimits = OCKAM_LIMITS, *, name: str = "ockam") -> TcpDialer:
    clock = SystemClock(asyncio.get_running_loop())
    return TcpDialer(transport_name=name, clock=clock, limits=limits, connect_seconds=10.0)


async def listening() -> tuple[TcpListener, Recorder]:
    events = Recorder()
    listener = await listen(
        "127.0.0.1",
        0,
        codec_factory=U16Framing,
        events_factory=lambda: events,
        transport_name="ockam",
        clock=SystemClock(asyncio.get_running_loop()),
        limits=OCKAM_LIMITS,
    )
    return listener, events


async def failure_of(dialling: TcpDialer, host: str, port: int) -> str:
    errors: list[RillnodeError] = []
    events = Recorder()
    dialling.dial(host, port, U16Framing(), events, errors.append)
    await until(lambda: errors)
    assert events.calls == []
    return errors[0].code


def test_what_is_no_address_is_told_as_such_and_ends_nothing() -> None:
    async def run() -> None:
        dialling = dialer()
        for host, port in (("a\0b", 1), ("127.0.0.1", 65_536), ("127.0.0.1", -1)):
            assert await failure_of(dialling, host, port) == "link.address"
        await dialling.close("the end")

    asyncio.run(run())


def test_a_link_opens_later_and_closes_with_its_dialer() -> None:
    async def run() -> None:
        listener, accepted = await listening()
        dialling, events = dialer(), Recorder()
        errors: list[RillnodeError] = []
        dialling.dial(listener.host, listener.port, U16Framing(), events, errors.append)
        assert events.calls == []
        await until(lambda: events.link and accepted.link)
        assert (dialling.link_count, events.open_link.info.dialled) == (1, True)
        events.open_link.send([b"hello"])
        await until(lambda: accepted.messages == [b"hello"])
        await dialling.close("done")
        assert (dialling.link_count, events.reason, errors) == (0, "done", [])
        await listener.close()

    asyncio.run(run())


def test_every_failure_is_told_once() -> None:
    async def run() -> None:
        dialling = dialer()
        listener, _ = await listening()
        port = listener.port
        await listener.close()
        assert await failure_of(dialling, "127.0.0.1", port) == "link.refused"
        assert await failure_of(dialling, "a..b", port) == "link.name"
        assert await failure_of(dialling, "x" * 64 + ".example", port) == "link.name"
        assert dialling.link_count == 0

    asyncio.run(run())


def test_a_handshake_that_fails_is_told_and_counted() -> None:
    async def run() -> None:
        listener = await listen(
            "127.0.0.1",
            0,
            codec_factory=lambda: NoiseLink.responder(NODE, accept=lambda _: False),
            events_factory=Recorder,
            transport_name="noise",
            clock=SystemClock(asyncio.get_running_loop()),
        )
        dialling = dialer(NOISE_LIMITS, name="noise")
        errors: list[RillnodeError] = []
        codec = NoiseLink.initiator(CLIENT, node_identity=NODE.public_hex)
        dialling.dial(listener.host, listener.port, codec, Recorder(), errors.append)
        await until(lambda: errors)
        assert (errors[0].code, errors[0].retryable) == ("noise.unknown_identity", False)
        assert dialling.counters == {"noise.unknown_identity": 1}
        await listener.close()

    asyncio.run(run())


def test_nothing_follows_a_cancelled_attempt() -> None:
    async def run() -> None:
        listener, accepted = await listening()
        dialling, events = dialer(), Recorder()
        errors: list[RillnodeError] = []
        dialling.dial(listener.host, listener.port, U16Framing(), events, errors.append).cancel()
        await dialling.close("done")
        assert (events.calls, errors, dialling.link_count) == ([], [], 0)
        await listener.close()
        assert accepted.reason is None or accepted.calls == ["opened", "closed"]

    asyncio.run(run())


def test_the_number_of_links_is_bounded() -> None:
    async def run() -> None:
        listener, _ = await listening()
        dialling = dialer(LinkLimits(connections_max=2))
        opened = [Recorder() for _ in range(2)]
        for events in opened:
            dialling.dial(listener.host, listener.port, U16Framing(), events, no_failure)
        await until(lambda: all(events.link for events in opened))
        assert await failure_of(dialling, listener.host, listener.port) == "link.too_many"
        await dialling.close("done")
        assert await failure_of(dialling, listener.host, listener.port) == "link.stopping"
        await listener.close()

    asyncio.run(run())


def test_a_link_without_use_is_closed() -> None:
    async def run() -> None:
        listener, accepted = await listening()
        clock = ManualClock()
        limits = LinkLimits(
            idle_ping_seconds=None, idle_close_seconds=None, unused_close_seconds=100.0
        )
        dialling = TcpDialer(
            transport_name="ockam", clock=clock, limits=limits, connect_seconds=10.0
        )
        events = Recorder()
        dialling.dial(listener.host, listener.port, U16Framing(), events, no_failure)
        await until(lambda: events.link and accepted.link)
        clock.advance(90.0)
        events.open_link.send([b"used"])
        clock.advance(90.0)
        await until(lambda: accepted.messages)
        accepted.open_link.send([b"used"])
        await until(lambda: events.messages)
        clock.advance(90.0)
        assert events.reason is None
        clock.advance(20.0)
        await until(lambda: events.reason)
        assert events.reason == "unused"
        assert not dialling.counters
        await listener.close()

    asyncio.run(run())
