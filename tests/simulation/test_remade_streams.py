"""A stream is removed, and another made under its name, while it is followed and worked on."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, TypeVar

import pytest

from rillnode import Client, RillnodeError, Stream
from rillnode.node.simulation.scenario import FaultKind
from rillnode.testing import Network

BEFORE: Final = 20
AFTER: Final = 40
TAKEN: Final = 15
"""Of those of before, by the time when the stream is removed."""

SLOW_SECONDS: Final = 1.5
"""For each of the others: positions are saved meanwhile."""

QUIET_SECONDS: Final = 30.0

Entries = AsyncGenerator[bytes]


async def follow_one(_: Client, stream: Stream) -> Entries:
    async for entry in stream.tail(start="start"):
        yield entry.data


async def follow_matches(_: Client, stream: Stream) -> Entries:
    async for entry in stream.tail(start="start", where="not no"):
        yield entry.data


async def pull_on(_: Client, stream: Stream, where: str = "") -> Entries:
    index = 0
    while True:
        for entry in await stream.pull(index, 4, where=where):
            index = entry.index + 1
            yield entry.data
        await asyncio.sleep(0.2)


async def pull_matches(client: Client, stream: Stream) -> Entries:
    async for data in pull_on(client, stream, "not no"):
        yield data


async def consume_alone(_: Client, stream: Stream) -> Entries:
    async with stream.consumer("c", save_seconds=0.5) as consumer:
        async for entry in consumer:
            yield entry.data


async def consume_in_a_group(_: Client, stream: Stream) -> Entries:
    async with stream.consumer("g", group=True, save_seconds=0.5) as consumer:
        async for entry in consumer:
            yield entry.data


async def work(_: Client, stream: Stream) -> Entries:
    async with stream.work("q", in_flight=1) as queue:
        async for job in queue:
            yield job.data
            with suppress(RillnodeError):
                await job.done()


async def follow_all(client: Client, _: Stream) -> Entries:
    async for followed in client.follow("s*", start="start"):
        yield followed.entry.data


Reader = Callable[[Client, Stream], Entries]


async def remake(network: Network) -> None:
    async with await network.client("a") as client:
        await client.remove("s")
        stream = await client.stream("s")
        for number in range(AFTER):
            await stream.push(b"new %d" % number)


async def cut_off(network: Network) -> None:
    """Do so while the node is down for everybody else, who finds another stream afterwards."""
    with network.partition("application"):
        network.kill("a")
        network.restart("a")
        await network.start("other", remake, network).wait()


def read(reader: Reader, remade: Callable[[Network], Awaitable[None]]) -> tuple[list[bytes], str]:
    """What has come of the later stream, and with which error it ended.

    No position of the earlier one must be in it.
    """
    found: list[bytes] = []

    async def program() -> str:
        async with await network.client("a") as client:
            stream = await client.stream("s")
            for number in range(BEFORE):
                await stream.push(b"old %d" % number)
            code = ""
            try:
                async with (
                    asyncio.timeout(QUIET_SECONDS),
                    aclosing(reader(client, stream)) as taken,
                ):
                    async for data in taken:
                        found.append(data)
                        if len(found) == TAKEN:
                            await remade(network)
                        elif len(found) > TAKEN and data.startswith(b"old"):
                            await asyncio.sleep(SLOW_SECONDS)
            except RillnodeError as error:
                code = error.code
            except TimeoutError:
                pass
            assert [await client.get_index(name, "s") for name in ("c", "g")] == [None, None]
            return code

    with Network(seed=3) as network:
        network.add_node("a")
        code = network.run(program())
        assert network.problems() == []
    old = [data for data in found if data.startswith(b"old")]
    assert old == [b"old %d" % number for number in range(len(old))]
    return found[len(old) :], code


@pytest.mark.parametrize("remade", [remake, cut_off])
@pytest.mark.parametrize(
    "reader",
    [
        follow_one,
        follow_matches,
        pull_on,
        pull_matches,
        consume_alone,
        consume_in_a_group,
        work,
    ],
)
def test_who_was_in_a_stream_that_was_removed_goes_on_in_no_other(
    reader: Reader, remade: Callable[[Network], Awaitable[None]]
) -> None:
    new, code = read(reader, remade)
    assert (new, code) == ([], "stream.removed")


@pytest.mark.parametrize("remade", [remake, cut_off])
def test_a_pattern_is_followed_into_the_later_stream_from_its_first_entry(
    remade: Callable[[Network], Awaitable[None]],
) -> None:
    new, code = read(follow_all, remade)
    assert (new, code) == ([b"new %d" % number for number in range(AFTER)], "")


# With faults ---------------------------------------------------------------------------------

STREAMS: Final = 4
"""Made one after the other, each when the one before is removed."""

ENTRIES: Final = 12
"""Of each."""

FAULTS: Final[Mapping[bool, Sequence[FaultKind]]] = {
    False: ("kill", "power_cut", "clog", "disk_failing", "disk_full", "pause", "partition"),
    True: ("kill", "power_cut", "clog", "log_cut", "log_unanswered", "log_delayed"),
}
"""Where nodes have stores of their own, and where they share a log."""


class Book:
    """What has come to whom, as pairs of a stream's number and an entry's index.

    Members of the group and workers share what they have.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.seen: dict[Reader, set[tuple[int, int]]] = {}
        self.broken: list[str] = []

    async def read(self, node: str, reader: Reader) -> None:
        """Be such a reader, for ever, of whichever stream has the name."""
        while True:
            with suppress(RillnodeError):
                async with await self.network.client(node) as client:
                    while True:
                        stream = await client.stream("s")
                        async with aclosing(reader(client, stream)) as taken:
                            await self._read(reader, taken)
            await asyncio.sleep(0.2)

    async def _read(self, reader: Reader, taken: Entries) -> None:
        seen = self.seen.setdefault(reader, set())
        first: int | None = None
        async for data in taken:
            made, index = map(int, data.split(b":"))
            first = made if first is None else first
            if made != first and reader is not follow_all:
                self.broken.append(f"{reader.__name__}: {data!r} comes after some of {first}")
            if missing := [one for one in range(index) if (made, one) not in seen]:
                self.broken.append(f"{reader.__name__}: {data!r} comes, and not {missing}")
            seen.add((made, index))

    async def push(self, node: str) -> None:
        """Make streams, fill and remove them."""
        async with await _until_done(partial(self.network.client, node)) as client:
            for made in range(STREAMS):
                if made:
                    await _until_done(partial(_remove, client))
                stream = await _until_done(partial(client.stream, "s"))
                for index in range(ENTRIES):
                    data = b"%d:%d" % (made, index)
                    await _until_done(partial(stream.push, data))
                    await asyncio.sleep(self.network.random.uniform(0.0, 0.5))

    async def whole(self) -> None:
        """Wait until all of the last stream has come to all readers."""
        last = {(STREAMS - 1, index) for index in range(ENTRIES)}
        async with asyncio.timeout(4 * QUIET_SECONDS):
            while not all(last <= seen for seen in self.seen.values()):
                await asyncio.sleep(0.5)


T = TypeVar("T")


async def _remove(client: Client) -> None:
    try:
        await client.remove("s")
    except RillnodeError as error:
        if error.code != "stream.unknown":  # it was done before
            raise


async def _until_done(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until that was done."""
    while True:
        with suppress(RillnodeError):
            return await ask()
        await asyncio.sleep(0.3)


@pytest.mark.parametrize("shared", [False, True], ids=["own store", "one log"])
@pytest.mark.parametrize(
    "seed", [9, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 40))]
)
def test_whatever_fails_nobody_passes_over_entries_of_a_later_stream(
    seed: int, *, shared: bool
) -> None:
    with Network(seed=seed, shared=shared, jitter_ms=2.0) as network:
        book, nodes = Book(network), ["a", "b"] if shared else ["a"]
        for node in nodes:
            network.add_node(node)

        async def program() -> None:
            readers = (follow_one, consume_alone, *2 * [consume_in_a_group], work, follow_all)
            for number, reader in enumerate(readers):
                node = nodes[number % len(nodes)]
                network.start(f"reader-{number}", book.read, node, reader)
            pushing = network.start("owner", book.push, "a")
            async with network.faults(*FAULTS[shared], count=8, seconds=25.0):
                await asyncio.sleep(25.0)
            await pushing.wait()
            await book.whole()

        network.run(program())
        assert book.broken == []
        assert network.problems() == []
