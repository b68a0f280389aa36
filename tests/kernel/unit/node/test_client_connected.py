"""A client tells whether there is a link, and of each that is lost and made."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from coroutines import handed_by, run_with
from far_end import FarEnd
from rillnode.codecs.errors import TransportError
from rillnode.node.client.client import Client
from rillnode.node.client.session import Session
from rillnode.node.testing.contract.base import until
from rillnode.transports.links import LinkEvents

Talk = Callable[[Client, FarEnd, list[str]], Awaitable[None]]


def with_client(talk: Talk, *, reconnect: bool = True) -> None:
    async def main() -> None:
        told: list[str] = []
        far = FarEnd()
        session = Session(
            far.connect,
            reconnect=reconnect,
            on_disconnect=told.append,
            on_reconnect=lambda: told.append("again"),
            name="noise://there:1",
        )
        await session.open()
        async with asyncio.timeout(10.0):
            client = Client(session)
            await talk(client, far, told)
            await client.close()

    asyncio.run(main())


client = handed_by(with_client)
far = handed_by(with_client, 1)
told = handed_by(with_client, 2)


async def test_each_lost_link_is_told_and_each_new_one(
    client: Client, far: FarEnd, told: list[str]
) -> None:
    assert client.connected
    assert repr(client) == "<Client of noise://there:1: connected>"
    assert told == []
    for _ in range(2):
        far.links[-1].close("cut")
        await until(lambda: not client.connected)
        assert repr(client) == "<Client of noise://there:1: not connected>"
        await until(lambda: client.connected)
    await until(lambda: len(told) == 4)
    assert told == ["closed by the peer", "again"] * 2


async def test_callbacks_may_be_coroutines() -> None:
    told: list[str] = []

    async def lost(reason: str) -> None:
        await asyncio.sleep(0)
        told.append(reason)

    async def again() -> None:
        await asyncio.sleep(0)
        told.append("again")

    far = FarEnd()
    session = Session(far.connect, on_disconnect=lost, on_reconnect=again)
    await session.open()
    async with asyncio.timeout(10.0):
        far.links[-1].close("cut")
        await until(lambda: told == ["closed by the peer", "again"])
        await session.close()


def test_the_end_of_a_client_is_no_lost_link() -> None:
    seen: list[list[str]] = []

    async def talk(client: Client, far: FarEnd, told: list[str]) -> None:
        await client.close()
        await asyncio.sleep(0.01)
        assert not client.connected
        seen.append(told)

    with_client(talk)
    assert seen == [[]]


@run_with(reconnect=False)
async def test_a_link_that_is_not_made_again_is_told_to_be_lost(
    client: Client, far: FarEnd, told: list[str]
) -> None:
    far.links[-1].close("cut")
    await until(lambda: bool(told))
    assert not client.connected
    assert len(told) == 1


def test_what_a_callback_raises_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fail(*_: object) -> None:
            raise LookupError

        far = FarEnd()
        session = Session(far.connect, on_disconnect=fail, on_reconnect=fail)
        await session.open()
        async with asyncio.timeout(10.0):
            far.links[-1].close("cut")
            await until(lambda: len(far.links) == 2 and session.connected)
            await asyncio.sleep(0)
            await session.close()

    with caplog.at_level(logging.CRITICAL, "asyncio"):
        asyncio.run(main())


async def test_a_client_that_was_given_up_while_it_connected_makes_no_link_again() -> None:
    told: list[str] = []
    far = FarEnd()

    async def dial(events: LinkEvents) -> None:
        await far.connect(events)
        await until(lambda: bool(far.links))
        try:
            await asyncio.Event().wait()  # the caller has not been told yet
        except asyncio.CancelledError:
            far.links[-1].close("dialling was given up")
            raise

    opening = asyncio.ensure_future(Session(dial, on_disconnect=told.append).open())
    await until(lambda: bool(far.links))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await asyncio.sleep(0.2)  # a new link would be made after 0.075 s at most
    assert len(far.links) == 1
    assert told == []


class Stuck:
    """Something of a client that does not come to its end by itself."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def close(self) -> None:
        self.begun.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("waits_for", ["part", "answer"])
async def test_a_close_that_is_cancelled_ends_the_link_at_once(waits_for: str) -> None:
    told: list[str] = []
    far, stuck = FarEnd(), Stuck()
    session = Session(far.connect, on_disconnect=told.append)
    await session.open()
    client = Client(session)
    async with asyncio.timeout(10.0):
        asking = asyncio.ensure_future(client.status())
        await until(lambda: bool(far.requests))
        if waits_for == "part":
            session.to_close.add(stuck)
        closing = asyncio.ensure_future(client.close())
        await (stuck.begun.wait() if waits_for == "part" else asyncio.sleep(0.01))
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(TransportError) as caught:
            await asking
        assert caught.value.code == "client.closed"
        await until(lambda: not client.connected)
    assert told == []
