"""A stream is removed, and another made under its name, while it is followed and worked on."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

import pytest

from rillnode import Client, RillnodeError, Stream
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


async def consume_alone(_: Client, stream: Stream) -> Entries:
    async with stream.consumer("c", save_seconds=0.5) as consumer:
        async for entry in consumer:
            yield entry.data


async def consume_in_a_group(_: Client, stream: Stream) -> Entries:
    async with stream.consumer("c", group=True, save_seconds=0.5) as consumer:
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
            assert await client.get_index("c", "s") is None
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
    "reader", [follow_one, follow_matches, consume_alone, consume_in_a_group, work]
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
