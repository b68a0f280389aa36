"""Tests the suites for clients on clients with mistakes: a named test must fail on each."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from contract import test_clients
from contract.test_clients import Native
from planting import in_the_long_part
from rillnode import RillnodeError, connect
from rillnode.testing.contract import Place

Suite = type[test_clients.TestNative]


class ConfirmsTooEarly(test_clients.TestNative):
    """Pushes, and does not wait."""

    async def push(self, client: Native, data: bytes) -> None:
        client[1].push_nowait(data).add_done_callback(lambda done: done.exception())


class SendsAgain(test_clients.TestNative):
    """Pushes anew where a call takes long, as if nothing had come of it."""

    async def push(self, client: Native, data: bytes) -> None:
        tries = [asyncio.ensure_future(client[1].push(data)) for _ in range(2)]
        await asyncio.gather(*tries)


class Overtakes(test_clients.TestNative):
    """Reads in another order."""

    async def read(self, client: Native, first: int) -> list[bytes]:
        return (await super().read(client, first))[::-1]


class StaysOpen(test_clients.TestNative):
    """Closes nothing, and so refuses nothing."""

    async def close(self, client: Native) -> None:
        pass


class LeavesATask(test_clients.TestNative):
    """Has something done for ever."""

    async def connect(self, place: Place) -> Native:
        self.left = asyncio.ensure_future(asyncio.sleep(3_600.0))
        return await super().connect(place)


class FollowsFromHereOn(test_clients.TestNative):
    """Begins anew, at the end, whenever its link may have been lost."""

    @asynccontextmanager
    async def follow(self, client: Native) -> AsyncGenerator[AsyncIterator[bytes]]:
        async def each() -> AsyncGenerator[bytes]:
            first = True
            while True:
                async with client[1].tail(start="start" if first else "end") as entries:
                    yield (await anext(entries)).data
                first = False

        yield each()


class RaisesItsOwn(test_clients.TestNative):
    """Tells of a node that is not there in words of another library."""

    async def connect(self, place: Place) -> Native:
        try:
            return await super().connect(place)
        except RillnodeError:
            raise OSError("connection refused") from None


class GivesUp(test_clients.TestNative):
    """Makes no lost link again, and says that it does."""

    async def connect(self, place: Place) -> Native:
        client = await connect(
            f"noise://{place.address}",
            identity=place.identity,
            node_identity=place.node_identity,
            reconnect=False,
        )
        return client, await client.stream("contract")


MISTAKES: dict[Suite, str] = {
    SendsAgain: "test_each_push_has_one_outcome_however_its_link_is_cut",
    LeavesATask: "test_a_closed_client_leaves_no_task_thread_or_connection",
}

FURTHER: dict[Suite, str] = {
    ConfirmsTooEarly: "test_closing_ends_what_waits_with_a_code",
    Overtakes: "test_what_is_pushed_is_read_in_order_from_any_index",
    StaysOpen: "test_a_closed_client_refuses_with_a_code",
    FollowsFromHereOn: "test_a_follower_gets_each_entry_once_and_in_order_over_cuts_and_stops",
    RaisesItsOwn: "test_a_node_that_is_not_there_is_told_with_a_code",
    GivesUp: "test_each_push_has_one_outcome_however_its_link_is_cut",
}


@pytest.mark.parametrize(
    ("suite", "test"),
    [*MISTAKES.items(), *in_the_long_part(FURTHER.items())],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_client_with_a_mistake_is_found(
    tmp_path: Path, suite: Suite, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rillnode.node.testing.contract.clients.OUTCOME_SECONDS", 3.0)
    monkeypatch.setattr("rillnode.node.testing.contract.base.SOON_SECONDS", 1.0)
    with pytest.raises((AssertionError, OSError, pytest.fail.Exception)):
        getattr(suite(), test)(tmp_path)
