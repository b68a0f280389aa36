"""Tests the contract of transports, alike for all of them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from link_support import CLIENT, NODE, Recorder, until
from rillnode.codecs.errors import CodecError
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.limits import FRAME_BYTES_MAX, U16_MESSAGE_BYTES_MAX, U32_MESSAGE_BYTES_MAX
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.framing import U16Framing, U32Framing
from rillnode.transports.clock import SystemClock
from rillnode.transports.links import LinkLimits
from rillnode.transports.memory import connect_memory
from rillnode.transports.tcp import dial, listen

LIMITS = LinkLimits(sweep_seconds=0.04, buffer_high_bytes=100_000)
SIZES = {"ockam": U16_MESSAGE_BYTES_MAX, "ockam 2024": U32_MESSAGE_BYTES_MAX}
PRINCIPALS = {
    "noise": (f"noise:{NODE.public_hex}", f"noise:{CLIENT.public_hex}"),
    "ockam": ("anonymous", "anonymous"),
    "ockam 2024": ("anonymous", "anonymous"),
    "memory": ("node", "application"),
}


@asynccontextmanager
async def joined(kind: str, limits: LinkLimits) -> AsyncGenerator[tuple[Recorder, Recorder], None]:
    """Both ends of one open link: the one that dialled, and the one that accepted."""
    near, far = Recorder(), Recorder()
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    if kind == "memory":
        connect_memory(
            near,
            far,
            dialling_principal="application",
            accepting_principal="node",
            post=loop.call_soon,
            clock=clock,
            limits=limits,
        )
        yield near, far
        return

    def codec(*, dialled: bool) -> LinkCodec:
        if kind != "noise":
            return U16Framing() if kind == "ockam" else U32Framing()
        if dialled:
            return NoiseLink.initiator(CLIENT)
        return NoiseLink.responder(NODE, accept=lambda _: True)

    listener = await listen(
        "127.0.0.1",
        0,
        codec_factory=lambda: codec(dialled=False),
        events_factory=lambda: far,
        transport_name=kind,
        clock=clock,
        limits=limits,
    )
    await dial(
        "127.0.0.1",
        listener.port,
        codec=codec(dialled=True),
        events=near,
        transport_name=kind,
        clock=clock,
        limits=limits,
    )
    await until(lambda: far.link)
    try:
        yield near, far
    finally:
        if near.reason is None:
            near.open_link.close("the test is over")
        await listener.close()
        await until(lambda: near.reason)


Case = Callable[[Recorder, Recorder], Awaitable[None]]


@pytest.fixture(params=[*PRINCIPALS])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(kind: str, case: Case, limits: LinkLimits = LIMITS) -> None:
    async def main() -> None:
        async with joined(kind, limits) as (near, far):
            await case(near, far)

    asyncio.run(main())


def test_both_ends_know_what_the_link_is(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        node, client = PRINCIPALS[kind]
        size = SIZES.get(kind, FRAME_BYTES_MAX)
        for end, principal, dialled in ((near, node, True), (far, client, False)):
            info = end.open_link.info
            assert (info.principal, info.transport, info.dialled) == (principal, kind, dialled)
            assert info.message_bytes_max == size
            assert info.wire_format == ("cbor" if kind == "ockam 2024" else "bare")
            assert info.remote
            assert end.calls == ["opened"]

    run(kind, case)


def test_messages_arrive_once_in_order_both_ways(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        sent = [b"%d" % number for number in range(3_000)]
        for at in range(0, 3_000, 7):
            near.open_link.send(sent[at : at + 7])
            far.open_link.send(sent[at : at + 7])
            if at % 70 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(near.messages) >= 3_000 and len(far.messages) >= 3_000)
        assert near.messages == far.messages == sent

    run(kind, case)


def test_the_largest_message_passes_and_a_larger_one_is_refused(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        size = near.open_link.info.message_bytes_max
        for wrong in (b"", bytes(size + 1)):
            with pytest.raises(CodecError) as caught:
                near.open_link.send([b"not even this", wrong])
            assert caught.value.code == "link.message_size"
        near.open_link.send([b"a", bytes(size), b"z"])
        await until(lambda: len(far.messages) == 3)
        assert [len(message) for message in far.messages] == [1, size, 1]
        assert far.reason is None

    run(kind, case)


def test_events_never_come_from_inside_send(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        near.open_link.send([b"text"])
        near.open_link.close("done")
        assert near.calls == ["opened"]
        assert far.calls == ["opened"]

    run(kind, case)


def test_closing_writes_what_is_buffered_and_tells_both_ends_once(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        near.open_link.send([bytes(60_000)] * 50)
        near.open_link.close("done")
        near.open_link.close("done again")
        near.open_link.send([b"too late"])
        await until(lambda: near.reason and far.reason)
        await asyncio.sleep(0.05)
        assert len(far.messages) == 50
        assert near.reason == "done"
        assert far.reason == "closed by the peer"
        for end in (near, far):
            assert end.calls.count("closed") == 1
            assert end.calls[-1] == "closed"
            end.open_link.send([b"no-op"])
            end.open_link.close("no-op")
            end.open_link.pause_reading()
            end.open_link.resume_reading()
        assert near.open_link.buffered_bytes == 0

    run(kind, case)


def test_nothing_is_told_of_messages_after_one_s_own_close(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        near.open_link.send([b"text"])
        far.open_link.close("not interested")
        await until(lambda: near.reason and far.reason)
        assert far.messages == []
        assert far.reason == "not interested"

    run(kind, case)


def test_a_paused_reader_gets_nothing_until_it_resumes(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        far.open_link.pause_reading()
        far.open_link.pause_reading()
        sent = [b"%d" % number for number in range(100)]
        near.open_link.send(sent)
        await asyncio.sleep(0.05)
        assert far.messages == []
        far.open_link.resume_reading()
        far.open_link.resume_reading()
        await until(lambda: len(far.messages) == 100)
        assert far.messages == sent

    run(kind, case)


def test_a_sender_is_told_when_its_bytes_have_drained(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        far.open_link.pause_reading()
        for _ in range(400):  # more than the operating system buffers
            near.open_link.send([bytes(60_000)])
        assert near.open_link.buffered_bytes > LIMITS.buffer_high_bytes
        await asyncio.sleep(0.05)
        assert near.drained == 0
        far.open_link.resume_reading()
        await until(lambda: len(far.messages) == 400)
        await until(lambda: near.drained)
        assert near.drained == 1
        assert near.open_link.buffered_bytes <= LIMITS.buffer_high_bytes

    run(kind, case)


def test_a_reader_that_does_not_drain_in_time_is_closed(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        far.open_link.pause_reading()
        near.open_link.send([bytes(60_000)] * 400)
        await until(lambda: near.reason)
        assert near.reason is not None
        assert "too slowly" in near.reason
        assert near.drained == 0

    run(kind, case, replace(LIMITS, drain_seconds=0.1))


def test_a_reader_that_falls_too_far_behind_is_closed_at_once(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        far.open_link.pause_reading()
        most = 0
        for _ in range(400):
            near.open_link.send([bytes(60_000)])
            most = max(most, near.open_link.buffered_bytes)
        await until(lambda: near.reason)
        assert near.reason is not None
        assert "too slowly" in near.reason
        assert most < 10_100_000

    run(kind, case, replace(LIMITS, buffer_bytes_max=10_000_000))


def test_a_close_that_cannot_write_what_is_buffered_is_bounded(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        far.open_link.pause_reading()
        near.open_link.send([bytes(60_000)] * 400)
        near.open_link.close("stopping")
        await asyncio.sleep(0.05)
        assert near.reason is None
        await until(lambda: near.reason)
        assert near.reason == "stopping"

    run(kind, case, replace(LIMITS, close_seconds=1.0))


def test_a_reader_may_send_and_close_from_inside_its_events(kind: str) -> None:
    async def case(near: Recorder, far: Recorder) -> None:
        def answer(link: object, messages: list[bytes]) -> None:
            far.open_link.send([b"answer"])
            far.open_link.close("answered")

        far.on_messages = answer
        near.open_link.send([b"question"])
        near.open_link.send([b"another"])
        await until(lambda: near.reason)
        assert near.messages == [b"answer"]
        assert far.reason == "answered"

    run(kind, case)
