"""Subscriptions, with live and stored messages given by hand."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import cast

import pytest

from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage
from rillnode.node.streamr.client import subscription as module
from rillnode.node.streamr.client.keys import Keys
from rillnode.node.streamr.client.live import Inbox, Partition
from rillnode.node.streamr.client.reader import ReaderTools
from rillnode.node.streamr.client.resends import From, Last, Range, Resend
from rillnode.node.streamr.client.streams import Streams
from rillnode.node.streamr.client.subscription import Subscription

DEADLINE_SECONDS = 60


def message(number: int, *, chain: str = "c", size: int = 0) -> StreamMessage:
    """The nth message of a chain; its content is its number, and some blanks."""
    previous = MessageRef(1_000 + number - 1, 0) if number else None
    name = MessageId("s", 0, 1_000 + number, 0, "0xpub", chain)
    return StreamMessage(id=name, previous=previous, content=f"{number}{' ' * size}")


class FastClock:
    """A clock on which waiting takes a hundredth of the time; its time of day is set by hand."""

    time_ms = 500

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() * 100

    elapsed = monotonic

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds / 100, callback)


class Bench:
    """A subscription and what it asks of a server.

    Attributes:
        asked: the resends that were begun.
        failures: raised by the next resends, after as many messages.
    """

    def __init__(self, *stored: StreamMessage, start: Last | From | None = None) -> None:
        self.stored = list(stored)
        self.asked: list[Resend] = []
        self.failures: list[tuple[int, RillnodeError]] = []
        self.left: list[Partition] = []
        self.clock = FastClock()
        tools = ReaderTools(
            streams=cast(Streams, None),
            keys=cast(Keys, self),
            publish=lambda _: None,
            clock=self.clock,
            now_ms=self.clock.now_ms,
            verify=False,
        )
        self.subscription = Subscription(("s", 0), self, self._resend, tools, start=start)
        self.beginning = asyncio.ensure_future(self.subscription.begin())

    def leave(self, partition: object, inbox: Inbox | None = None) -> None:
        """What both the live messages and the keys are told in the end."""
        if inbox is not None:
            self.left.append(cast(Partition, partition))

    async def take(self, count: int) -> list[object]:
        return [(await anext(self.subscription)).content for _ in range(count)]

    async def _resend(self, what: Resend) -> AsyncGenerator[StreamMessage]:
        self.asked.append(what)
        count, failure = self.failures.pop(0) if self.failures else (None, None)
        match what:
            case Last(count=newest):
                found = self.stored[-newest:]
            case From():
                found = [m for m in self.stored if m.id.timestamp >= what.timestamp]
            case Range():
                found = [m for m in self.stored if what.start < m.id.timestamp <= what.end]
        for one in found[:count]:
            yield one
        if failure is not None:
            raise failure


async def test_live_messages_wait_until_the_stored_ones_are_read() -> None:
    bench = Bench(*(message(n) for n in range(5)), start=Last(3))
    for n in (4, 5):
        bench.subscription.message_received(message(n))
    assert await bench.take(4) == [2, 3, 4, 5]
    await bench.subscription.close()
    assert bench.left == [("s", 0)]


async def test_what_was_missed_is_read_where_it_is_missing() -> None:
    bench = Bench(*(message(n) for n in range(6)))
    receive = bench.subscription.message_received
    receive(message(0))
    bench.subscription.resubscribed()
    bench.subscription.resubscribed()
    receive(message(4))
    # Of another chain, which begins with what comes first of it.
    bench.stored.append(message(5, chain="other"))
    receive(message(6, chain="other"))
    assert await bench.take(8) == [0, 1, 2, 3, 4, 5, 5, 6]
    assert bench.asked == [From(500)]


async def test_what_comes_before_the_answer_hides_nothing_of_a_long_outage() -> None:
    bench = Bench(message(40_000, chain="silent"))
    bench.clock.time_ms = 301_000
    bench.subscription.message_received(message(0))
    bench.subscription.interrupted()
    bench.subscription.message_received(message(300_000, chain="busy"))
    bench.subscription.resubscribed()
    assert await bench.take(3) == [0, 300_000, 40_000]
    assert bench.asked == [From(500)]


@pytest.mark.parametrize("ahead_ms", [0, 250_000])
async def test_what_publishers_with_other_clocks_have_sent_meanwhile_is_read(ahead_ms: int) -> None:
    bench = Bench(message(80_000, chain="behind"))
    bench.clock.time_ms = 101_000
    bench.subscription.message_received(message(0))
    bench.subscription.message_received(message(100_000 + ahead_ms, chain="other"))
    bench.subscription.resubscribed()
    assert await bench.take(3) == [0, 100_000 + ahead_ms, 80_000]
    assert bench.asked == [From(101_000 - module.CLOCKS_MS)]


async def test_a_resend_of_one_publisher_is_of_that_one_after_it_broke() -> None:
    bench = Bench(*(message(n) for n in range(3)), start=From(0, publisher="0xpub"))
    bench.failures = [(1, TransportError("link.closed", "gone"))]
    assert await bench.take(3) == [0, 1, 2]
    assert bench.asked == [From(0, publisher="0xpub"), From(1_000, publisher="0xpub")]


async def test_nothing_published_before_the_subscription_is_missed() -> None:
    bench = Bench(message(0))
    bench.subscription.resubscribed()
    assert await bench.take(1) == [0]
    assert bench.asked == [From(500)]


async def test_what_the_inbox_cannot_hold_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INBOX_BYTES_MAX", 100)
    messages = [message(n, size=30) for n in range(50)]
    bench = Bench(*messages)
    for one in messages:
        bench.subscription.message_received(one)
    # Of a publisher whose clock is behind, and of one who says that it is long ago.
    bench.stored[:0] = [message(-900, chain="old"), message(1, chain="behind")]
    bench.subscription.message_received(bench.stored[0])
    bench.subscription.message_received(bench.stored[1])
    assert Counter(await bench.take(51)) == Counter([1, *range(50)])
    assert bench.asked == [From(500)]


async def test_application_that_takes_nothing_holds_the_stored_messages_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "READY_MAX", 10)
    given: list[int] = []

    async def endless(_: Resend) -> AsyncGenerator[StreamMessage]:
        for n in range(1_000_000):
            given.append(n)
            yield message(n)

    bench = Bench()
    bench.subscription._resending = endless  # pyright: ignore[reportPrivateUsage]
    bench.subscription.resubscribed()
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert len(given) == 10
    assert await bench.take(100) == list(range(100))
    await bench.subscription.close()


async def test_broken_resend_goes_on_where_it_broke() -> None:
    bench = Bench(*(message(n) for n in range(6)), start=Last(6))
    broken = TransportError("link.closed", "gone")
    bench.failures = [(0, broken), (2, broken)]
    bench.subscription.message_received(message(6))
    assert await bench.take(7) == list(range(7))
    assert bench.asked == [Last(6), Last(6), From(1_001)]


async def test_refused_resend_ends_the_subscription_after_what_has_come() -> None:
    bench = Bench(*(message(n) for n in range(6)), start=Last(6))
    bench.failures = [(2, RequestError("RESEND_FAILED", "no"))]
    assert await bench.take(2) == [0, 1]
    await bench.beginning
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            await anext(bench.subscription)
        assert caught.value.code == "RESEND_FAILED"


async def test_resend_that_is_refused_at_once_is_told_at_the_beginning() -> None:
    bench = Bench(message(0), start=Last(1))
    bench.failures = [(0, RequestError("PERMISSION_DENIED", "no"))]
    with pytest.raises(RequestError) as caught:
        await bench.beginning
    assert caught.value.code == "PERMISSION_DENIED"


async def test_failure_comes_after_what_has_come() -> None:
    bench = Bench()
    bench.subscription.message_received(message(0))
    bench.subscription.failed(TransportError("client.closed", "over"))
    assert await bench.take(1) == [0]
    with pytest.raises(TransportError):
        await anext(bench.subscription)


async def test_gap_is_asked_for_and_skipped_where_it_cannot_be_filled() -> None:
    bench = Bench(message(1))
    for n in (0, 2, 5):
        bench.subscription.message_received(message(n))
    assert await bench.take(4) == [0, 1, 2, 5]
    assert bench.subscription.gaps == 1
    assert bench.asked[0] == Range(1_000, 1_001, 1, 0, "0xpub", "c")
    assert set(bench.asked[1:]) == {Range(1_002, 1_004, 1, 0, "0xpub", "c")}


async def test_long_gap_is_filled_however_long_it_takes() -> None:
    bench = Bench()

    async def slow(_: Resend) -> AsyncGenerator[StreamMessage]:
        for n in range(1, 40):
            await asyncio.sleep(0.03)  # three seconds of its clock
            yield message(n)

    bench.subscription._resending = slow  # pyright: ignore[reportPrivateUsage]
    for n in (0, 40):
        bench.subscription.message_received(message(n))
    assert await bench.take(41) == list(range(41))
    assert bench.subscription.gaps == 0


async def test_closed_subscription_ends_its_iteration() -> None:
    bench = Bench()
    waiting = asyncio.ensure_future(anext(bench.subscription, None))
    await asyncio.sleep(0)
    await bench.subscription.close()
    await bench.subscription.close()
    assert await waiting is None
    assert bench.left == [("s", 0)]
