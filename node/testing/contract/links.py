"""States what every link promises (`rillnode.transports.links`), whatever it carries messages over.

class TestMyLink(LinkContract):
    transport, principals = "mine", ("anonymous", "anonymous")

    @asynccontextmanager
    async def joined(self, near, far, limits):
        listener = await my_listen(events_factory=lambda: far, limits=limits)
        await my_dial(listener.address, events=near, limits=limits)

Yield:
        await listener.close()
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import ClassVar, Final

import pytest

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.links import WireFormat
from rillnode.node.testing.contract.base import Contract, until
from rillnode.transports.links import Link, LinkEvents, LinkLimits

LIMITS: Final = LinkLimits(sweep_seconds=0.04, buffer_high_bytes=100_000)

PIECE: Final = bytes(60_000)
"""A message that every link takes."""

MUCH: Final = [PIECE] * 400
"""More than an operating system keeps for a reader that does not read."""

ROUNDS: Final = 50
"""Turns of the loop in which what must not come would have come."""

FROM_BOTH_ENDS: Final = pytest.mark.parametrize(
    "dialled", [True, False], ids=["dialled", "accepted"]
)
"""For tests of one end, the first of `LinkContract.link`."""


class Recorder:
    """Link events, as they came.

    Attributes:
        calls: their names, oldest first: `opened`, `messages`, `drained` and `closed`.
        messages: all that were received, in order.
        link: the link, once it is open.
        reason: why it was closed, once it is.
        on_opened: called with the link when it opens.
        on_messages: called with the link and each batch.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.messages: list[bytes] = []
        self.link: Link | None = None
        self.reason: str | None = None
        self.on_opened: Callable[[Link], object] | None = None
        self.on_messages: Callable[[Link, list[bytes]], None] | None = None

    @property
    def open_link(self) -> Link:
        """The link, which has opened."""
        assert self.link is not None
        return self.link

    @property
    def drained(self) -> int:
        """How often it was told that the link has drained."""
        return self.calls.count("drained")

    def link_opened(self, link: Link) -> None:
        """Note it."""
        self.calls.append("opened")
        self.link = link
        if self.on_opened is not None:
            self.on_opened(link)

    def messages_received(self, messages: list[bytes]) -> None:
        """Note it."""
        self.calls.append("messages")
        self.messages += messages
        if self.on_messages is not None:
            self.on_messages(self.open_link, messages)

    def link_drained(self) -> None:
        """Note it."""
        self.calls.append("drained")

    def link_closed(self, reason: str) -> None:
        """Note it."""
        self.calls.append("closed")
        self.reason = reason


class LinkContract(Contract):
    """Every link keeps its messages' order, bounds what waits, and ends once, for a reason.

    Attributes:
        transport: what `info.transport` says.
        principals: who is met by the end that dials, and by the one that accepts.
        message_bytes_max: what `info.message_bytes_max` says, 1,000,000 at least.
        wire_format: what `info.wire_format` says.
    """

    transport: ClassVar[str]
    principals: ClassVar[tuple[str, str]]
    message_bytes_max: ClassVar[int] = FRAME_BYTES_MAX
    wire_format: ClassVar[WireFormat] = "bare"

    def joined(
        self, near: LinkEvents, far: LinkEvents, limits: LinkLimits
    ) -> AbstractAsyncContextManager[None]:
        """Open one link, each of whose ends has these limits.

        `near` is told of the end that dials, `far` of the one that accepts; both have opened when
        the block begins. When it is left, whatever is still open is closed, and nothing is left.
        """
        raise NotImplementedError

    @asynccontextmanager
    async def link(
        self, limits: LinkLimits = LIMITS, *, dialled: bool = True
    ) -> AsyncGenerator[tuple[Recorder, Recorder], None]:
        """Both ends of one open link: first the one that dialled, or else the one that accepted."""
        near, far = Recorder(), Recorder()
        async with self.joined(*((near, far) if dialled else (far, near)), limits):
            yield near, far

    # What it is ------------------------------------------------------------------------------

    async def test_both_ends_know_what_the_link_is(self) -> None:
        async with self.link() as ends:
            for end, principal, dialled in zip(ends, self.principals, (True, False), strict=True):
                info = end.open_link.info
                assert (info.principal, info.transport) == (principal, self.transport)
                assert (info.dialled, info.wire_format) == (dialled, self.wire_format)
                assert info.message_bytes_max == self.message_bytes_max
                assert info.remote
                assert end.calls == ["opened"]

    # Messages --------------------------------------------------------------------------------

    async def test_messages_arrive_once_in_order_both_ways(self) -> None:
        async with self.link() as (near, far):
            sent = [b"%d" % number for number in range(3_000)]
            for at in range(0, 3_000, 7):
                near.open_link.send(sent[at : at + 7])
                far.open_link.send(sent[at : at + 7])
                if at % 70 == 0:
                    await asyncio.sleep(0)
            await until(lambda: len(near.messages) >= 3_000 and len(far.messages) >= 3_000)
            assert near.messages == far.messages == sent

    @FROM_BOTH_ENDS
    async def test_a_batch_may_be_changed_after_it_was_sent(self, *, dialled: bool) -> None:
        async with self.link(dialled=dialled) as (near, far):
            batch = [b"first"]
            near.open_link.send(batch)
            batch[0] = b"never sent"
            batch.append(b"nor this")
            near.open_link.send([])
            near.open_link.send((b"last",))
            await until(lambda: b"last" in far.messages)
            assert far.messages == [b"first", b"last"]

    @FROM_BOTH_ENDS
    async def test_events_never_come_from_inside_send_or_close(self, *, dialled: bool) -> None:
        async with self.link(dialled=dialled) as (near, far):
            near.open_link.send([b"text"])
            near.open_link.close("done")
            assert near.calls == far.calls == ["opened"]
            await until(lambda: near.reason and far.reason)

    @FROM_BOTH_ENDS
    async def test_a_reader_may_send_and_close_from_inside_its_events(
        self, *, dialled: bool
    ) -> None:
        async with self.link(dialled=dialled) as (near, far):

            def answer(link: Link, _: Sequence[bytes]) -> None:
                link.send([b"answer"])
                link.close("answered")

            far.on_messages = answer
            near.open_link.send([b"question"])
            near.open_link.send([b"another"])
            await until(lambda: near.reason)
            assert near.messages == [b"answer"]
            assert far.reason == "answered"

    # Reading ---------------------------------------------------------------------------------

    @FROM_BOTH_ENDS
    async def test_a_paused_reader_gets_nothing_until_it_resumes(self, *, dialled: bool) -> None:
        async with self.link(dialled=dialled) as (near, far):
            far.open_link.pause_reading()
            far.open_link.pause_reading()
            sent = [b"%d" % number for number in range(100)]
            near.open_link.send(sent)
            await self.pass_rounds()
            assert far.messages == []
            far.open_link.resume_reading()
            far.open_link.resume_reading()
            await until(lambda: len(far.messages) == 100)
            assert far.messages == sent

    @FROM_BOTH_ENDS
    async def test_a_reader_that_pauses_at_a_batch_gets_no_other_until_it_resumes(
        self, *, dialled: bool
    ) -> None:
        async with self.link(dialled=dialled) as (near, far):
            far.on_messages = lambda link, _: link.pause_reading()
            sent = [b"%d" % number for number in range(20)]
            for message in sent:
                near.open_link.send([message])
                await asyncio.sleep(0)
            batches = 1

            def has_come() -> bool:
                return far.calls.count("messages") == batches

            await until(lambda: far.messages)
            assert has_come()
            while len(far.messages) < len(sent):
                far.open_link.resume_reading()
                batches += 1
                await until(has_come)
                await self.pass_rounds()
                assert has_come()
            assert far.messages == sent

    @FROM_BOTH_ENDS
    async def test_a_paused_reader_may_send(self, *, dialled: bool) -> None:
        async with self.link(dialled=dialled) as (near, far):
            far.open_link.pause_reading()
            far.open_link.send([b"text"])
            await until(lambda: near.messages == [b"text"])

    # Outgoing bytes --------------------------------------------------------------------------

    @FROM_BOTH_ENDS
    async def test_a_sender_is_told_when_its_bytes_have_drained(self, *, dialled: bool) -> None:
        async with self.link(dialled=dialled) as (near, far):
            far.open_link.pause_reading()
            for piece in MUCH:
                near.open_link.send([piece])
            assert near.open_link.buffered_bytes > LIMITS.buffer_high_bytes
            await self.pass_rounds()
            assert near.drained == 0
            far.open_link.resume_reading()
            await until(lambda: len(far.messages) == len(MUCH))
            await until(lambda: near.drained)
            assert near.drained == 1
            assert near.open_link.buffered_bytes <= LIMITS.buffer_high_bytes

    @FROM_BOTH_ENDS
    async def test_a_reader_that_does_not_drain_in_time_is_closed(self, *, dialled: bool) -> None:
        async with self.link(replace(LIMITS, drain_seconds=0.1), dialled=dialled) as (near, far):
            far.open_link.pause_reading()
            near.open_link.send(MUCH)
            await until(lambda: near.reason)
            assert near.reason is not None
            assert "too slowly" in near.reason
            assert near.drained == 0

    @FROM_BOTH_ENDS
    async def test_a_reader_that_falls_too_far_behind_is_closed_at_once(
        self, *, dialled: bool
    ) -> None:
        async with self.link(replace(LIMITS, buffer_bytes_max=10_000_000), dialled=dialled) as (
            near,
            far,
        ):
            far.open_link.pause_reading()
            most = 0
            for piece in MUCH:
                near.open_link.send([piece])
                most = max(most, near.open_link.buffered_bytes)
            await until(lambda: near.reason)
            assert near.reason is not None
            assert "too slowly" in near.reason
            assert most < 10_100_000

    # Its end ---------------------------------------------------------------------------------

    @FROM_BOTH_ENDS
    async def test_closing_writes_what_is_buffered_and_tells_both_ends_once(
        self, *, dialled: bool
    ) -> None:
        async with self.link(dialled=dialled) as (near, far):
            near.open_link.send(MUCH[:50])
            near.open_link.close("done")
            near.open_link.close("done again")
            near.open_link.send([b"too late"])
            await until(lambda: near.reason and far.reason)
            await self.pass_rounds()
            assert len(far.messages) == 50
            assert near.reason == "done"
            assert far.reason == "closed by the peer"
            assert near.open_link.buffered_bytes == 0

    @FROM_BOTH_ENDS
    async def test_a_closed_link_takes_every_call_and_does_nothing(self, *, dialled: bool) -> None:
        async with self.link(dialled=dialled) as (near, far):
            far.open_link.close("done")
            await until(lambda: near.reason and far.reason)
            for end in (near, far):
                end.open_link.send([b"no-op"])
                end.open_link.close("no-op")
                end.open_link.pause_reading()
                end.open_link.resume_reading()
            await self.pass_rounds()
            assert near.calls == far.calls == ["opened", "closed"]

    @FROM_BOTH_ENDS
    async def test_nothing_is_told_of_messages_after_one_s_own_close(
        self, *, dialled: bool
    ) -> None:
        async with self.link(dialled=dialled) as (near, far):
            near.open_link.send([b"text"])
            far.open_link.close("not interested")
            await until(lambda: near.reason and far.reason)
            assert far.messages == []
            assert far.reason == "not interested"

    async def test_both_ends_that_close_at_once_keep_their_own_reasons(self) -> None:
        async with self.link() as (near, far):
            near.open_link.close("near is done")
            far.open_link.close("far is done")
            await until(lambda: near.reason and far.reason)
            assert (near.reason, far.reason) == ("near is done", "far is done")
            assert near.calls == far.calls == ["opened", "closed"]

    async def test_a_link_may_be_closed_in_its_first_event(self) -> None:
        near, far = Recorder(), Recorder()
        far.on_opened = lambda link: link.close("no, thanks")
        near.on_opened = lambda link: link.send([b"early"])
        async with self.joined(near, far, LIMITS):
            await until(lambda: near.reason and far.reason)
            assert far.reason == "no, thanks"
            assert far.calls == ["opened", "closed"]
            assert near.messages == []

    @FROM_BOTH_ENDS
    async def test_a_close_that_cannot_write_what_is_buffered_is_bounded(
        self, *, dialled: bool
    ) -> None:
        async with self.link(replace(LIMITS, close_seconds=0.1), dialled=dialled) as (near, far):
            far.open_link.pause_reading()
            near.open_link.send(MUCH)
            near.open_link.close("stopping")
            await until(lambda: near.reason)
            assert near.reason == "stopping"

    async def pass_rounds(self) -> None:
        """Let the loop have many turns, so that what must not come would have come."""
        for _ in range(ROUNDS):
            await asyncio.sleep(0.001)


class SizedLinkContract(LinkContract):
    """For links that know what their peer takes: they refuse to send anything else."""

    @FROM_BOTH_ENDS
    async def test_the_largest_message_passes_and_a_larger_one_is_refused(
        self, *, dialled: bool
    ) -> None:
        async with self.link(dialled=dialled) as (near, far):
            size = near.open_link.info.message_bytes_max
            for wrong in (b"", bytes(size + 1)):
                with pytest.raises(CodecError) as caught:
                    near.open_link.send([b"not even this", wrong])
                assert caught.value.code == "link.message_size"
            near.open_link.send([b"a", bytes(size), b"z"])
            await until(lambda: len(far.messages) == 3)
            assert [len(message) for message in far.messages] == [1, size, 1]
            assert far.reason is None
