"""A pusher: how much it leaves unconfirmed, and what it makes of errors."""

import asyncio
from collections.abc import Callable

import pytest

from coroutines import handed_by
from rillnode.codecs.errors import QuotaError, RequestError
from rillnode.codecs.keyed import Headers, Key
from rillnode.node.client.producer import WINDOW_BYTES, Data
from rillnode.node.client.pusher import Pusher


class Log:
    """Stands for a stream: takes pushes, and confirms them when it is told to."""

    def __init__(self) -> None:
        self.pushed: list[tuple[int, bytes]] = []
        self.open: list[asyncio.Future[int]] = []
        self.most = 0

    def push_nowait(
        self, data: Data, /, *, key: Key | None, headers: Headers | None, partition: int | None
    ) -> asyncio.Future[int]:
        if not data:
            raise RequestError("entries.size", "an entry that is refused at once")
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.pushed.append((partition or 0, bytes(data)))
        self.open.append(future)
        self.most = max(self.most, len(self.open))
        return future

    def confirm(self, count: int) -> None:
        for _ in range(count):
            self.open.pop(0).set_result(len(self.pushed))

    def refuse(self, code: str = "quota.bytes") -> None:
        self.open.pop(0).set_exception(RequestError(code, "why not"))

    async def confirm_slowly(self) -> None:
        while True:
            await turns()
            if self.open:
                self.confirm(1)


def run(test: Callable[[Log], object]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10.0):
            await test(Log())  # type: ignore[misc]

    asyncio.run(main())


log = handed_by(run)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limit", [1, 7, 64])
async def test_no_more_is_unconfirmed_than_the_window(log: Log, limit: int) -> None:
    confirming = asyncio.ensure_future(log.confirm_slowly())
    async with Pusher(log.push_nowait, limit) as pusher:
        futures = [await pusher.push(b"%d" % n, partition=n % 3) for n in range(300)]
    assert pusher.in_flight == 0
    assert all(future.done() for future in futures)
    assert log.pushed == [(n % 3, b"%d" % n) for n in range(300)]
    assert log.most == limit
    confirming.cancel()


async def test_its_end_waits_for_every_confirm(log: Log) -> None:
    async def push() -> None:
        async with Pusher(log.push_nowait, 10) as pusher:
            for _ in range(3):
                await pusher.push(b"x")

    pushing = asyncio.ensure_future(push())
    for left in (3, 2, 1):
        await turns()
        assert len(log.open) == left
        assert not pushing.done()
        log.confirm(1)
    await pushing


async def test_its_bytes_are_bounded_too(log: Log) -> None:
    async with Pusher(log.push_nowait, 1_000) as pusher:
        large = bytes(WINDOW_BYTES // 4)
        for _ in range(5):
            await pusher.push(memoryview(large))
        sixth = asyncio.ensure_future(pusher.push(large))
        await turns()
        assert not sixth.done()
        log.confirm(1)
        await sixth
        log.confirm(5)


async def test_the_first_error_is_raised_by_the_next_push_and_by_the_end(log: Log) -> None:
    pusher = Pusher(log.push_nowait, 10)
    for _ in range(3):
        await pusher.push(b"x")
    log.confirm(1)
    log.refuse()
    log.refuse("quota.rate")
    await turns()
    for ask in (pusher.push(b"y"), pusher.flush(), pusher.__aexit__(None, None, None)):
        with pytest.raises(QuotaError) as caught:
            await ask
        assert caught.value.code == "quota.bytes"
    assert len(log.pushed) == 3


async def test_an_error_of_the_block_goes_through_at_once(log: Log) -> None:
    async def push(data: bytes) -> None:
        async with Pusher(log.push_nowait, 10) as pusher:
            await pusher.push(b"x")
            await pusher.push(data)

    with pytest.raises(RequestError) as caught:
        await push(b"")
    assert caught.value.code == "entries.size"
    assert len(log.open) == 1


async def test_a_push_that_is_cancelled_while_it_waits_is_none(log: Log) -> None:
    async with Pusher(log.push_nowait, 2) as pusher:
        for _ in range(2):
            await pusher.push(b"x")
        waiting = asyncio.ensure_future(pusher.push(b"cancelled"))
        await turns()
        waiting.cancel()
        await turns()
        log.confirm(2)
        await turns()
        await pusher.push(b"y")
        log.confirm(1)
    assert [data for _, data in log.pushed] == [b"x", b"x", b"y"]


async def test_a_window_of_none_is_refused(log: Log) -> None:
    with pytest.raises(RequestError, match="in_flight is at least 1, not 0") as caught:
        Pusher(log.push_nowait, 0)
    assert caught.value.code == "pusher.invalid"
    assert repr(Pusher(log.push_nowait, 5)) == "<Pusher: 0 of 5 in flight>"
