"""Tests that followers of a log are told of all that becomes durable in it."""

from functools import partial

import pytest

from core_support import Core, Peer
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.followers import Followers, Grown, Removed
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import log_id
from rillnode.codecs import native
from rillnode.codecs.entries import items_of, pack_body
from rillnode.codecs.routing.stream import CreateRequest

ADDRESS = b"ST_S_0_s"
LOG = log_id(1, 0)


class Follower(Worker):
    """Notes what it is told."""

    def __init__(self, told: list[Grown | Removed]) -> None:
        self._told = told

    def handle(self, message: Grown | Removed, sender: Cell | None) -> None:
        self._told.append(message)


def follower(core: Core, told: list[Grown | Removed]) -> Cell:
    return core.system.spawn(partial(Follower, told))


async def push(peer: Peer, item: bytes) -> int:
    request = native.AppendRequest(1, 1, pack_body([item]))
    (answer,) = await peer.ask(ADDRESS, request)
    assert isinstance(answer, native.PositionResponse)
    return answer.index


def delivered(peer: Peer) -> list[bytes]:
    answers = [native.decode_response(one.payload) for one in peer.answers]
    return [
        bytes(item)
        for answer in answers
        if isinstance(answer, native.BlocksResponse)
        for block in native.blocks_of(answer)
        for item in items_of(block.value)
    ]


async def test_who_follows_is_told_until_it_follows_no_more(core: Core) -> None:
    followers, told = Followers(), list[Grown | Removed]()
    one, other = follower(core, told), follower(core, told)
    followers.grown(LOG, 1)
    for cell in (one, other, one):
        followers.add(LOG, cell)
    followers.grown(LOG, 2)
    followers.grown(LOG + 1, 9)
    followers.remove(LOG, other)
    followers.remove(LOG, other)
    followers.grown(LOG, 3)
    followers.removed(LOG)
    followers.grown(LOG, 4)
    await core.settle()
    assert told == [Grown(2), Grown(3), Removed(LOG), Grown(2)]
    assert not followers.logs


async def test_logs_that_get_followers_are_told_once(core: Core) -> None:
    followers, begun = Followers(), list[int]()
    followers.begun = begun.append
    cells = [follower(core, []) for _ in range(2)]
    for cell in cells:
        followers.add(LOG, cell)
    for cell in cells:
        followers.remove(LOG, cell)
    followers.add(LOG, cells[0])
    assert begun == [LOG, LOG]
    assert list(followers.logs) == [LOG]


async def test_who_asks_anew_under_the_same_number_is_found_until_that_one_ends(core: Core) -> None:
    followers, asker = Followers(), (Origin("noise:a", 65_000, native=True), 7)
    first, second = follower(core, []), follower(core, [])
    followers.add(LOG, first, asker)
    assert followers.asked(LOG, asker) is first
    followers.add(LOG, second, asker)
    followers.remove(LOG, first, asker)
    assert followers.asked(LOG, asker) is second
    followers.remove(LOG, second, asker)
    assert followers.asked(LOG, asker) is None


async def test_who_has_ended_without_a_word_is_forgotten(core: Core) -> None:
    followers, told = Followers(), list[Grown | Removed]()
    gone, there = follower(core, told), follower(core, told)
    followers.add(LOG, gone)
    followers.add(LOG, there)
    core.system.exit(gone)
    await core.settle()
    before = core.system.dead_letters.count
    for _ in range(2):
        followers.grown(LOG, 1)
    await core.settle()
    assert told == [Grown(1), Grown(1)]
    assert core.system.dead_letters.count == before
    followers.remove(LOG, there)
    assert not followers.logs


async def test_an_idle_stream_sleeps_while_it_is_followed_and_wakes_for_the_next_entry(
    core: Core,
) -> None:
    reader, writer = core.peer(), core.peer()
    await writer.ask("stream", CreateRequest("s"))
    await reader.ask(ADDRESS, native.SubscribeRequest(1, 0, 1_000_000))
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    for _ in range(3):
        core.clock.advance(StreamActor.idle_seconds or 0.0)
        await core.settle()
    assert cell.instance is None
    reader.answers.clear()
    assert await push(writer, b"x") == 0
    assert delivered(reader) == [b"x"]


@pytest.mark.parametrize("ends", [False, True])
async def test_a_subscription_outlives_its_streams_actor(core: Core, ends: bool) -> None:
    reader, writer = core.peer(), core.peer()
    await writer.ask("stream", CreateRequest("s"))
    await reader.ask(ADDRESS, native.SubscribeRequest(1, 0, 1_000_000))
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    core.system.exit(cell)
    await core.settle()
    reader.answers.clear()
    if ends:  # it does not know its subscription's address yet
        await reader.ask(ADDRESS, native.UnsubscribeRequest(1))
    assert await push(writer, b"x") == 0
    assert core.router.lookup(ADDRESS) is not cell
    assert delivered(reader) == ([] if ends else [b"x"])
    assert len(reader.origin.attached) == (0 if ends else 1)
