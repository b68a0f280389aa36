"""Actors of other protocols append to a stream's log, and are told once what comes of it."""

from functools import partial
from typing import get_args

import pytest

from core_support import Core, Inserter
from coroutines import run_with
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.appending import Insertion
from rillnode.actors.core.streams.followers import Grown
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.faults import When
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Append, Read, log_id
from rillnode.codecs import native
from rillnode.codecs.entries import EntryKind, entries_of
from rillnode.testing import fail

LOG = log_id(1, 0)


class Follower(Worker):
    """Notes how far it is told that the log reaches."""

    def __init__(self, grown: list[int]) -> None:
        self._grown = grown

    def handle(self, message: Grown, sender: object) -> None:
        self._grown.append(message.next_index)


async def inserter(core: Core) -> tuple[Cell, list[tuple[str, int, str]]]:
    """An actor that appends to a new stream, and what it is told."""
    await core.peer().ask("stream", native.OpenRequest(1, "s", 1))
    told: list[tuple[str, int, str]] = []
    return core.system.spawn(partial(Inserter, core.context, LOG, told)), told


def entries(*items: bytes) -> Insertion:
    return Insertion("node", EntryKind.BYTES, items)


def stored(core: Core) -> list[bytes]:
    read = Read(log=LOG)
    assert core.store.read(read)
    return [entry.data for block in read.blocks for entry in entries_of(block)]


async def test_it_is_told_in_its_turn_and_the_followers_are(core: Core) -> None:
    cell, told = await inserter(core)
    grown: list[int] = []
    core.context.followers.add(LOG, core.system.spawn(partial(Follower, grown)))
    core.system.post(cell, entries(b"a", b"b"))
    core.system.post(cell, entries(b"c"))
    await core.settle()
    assert told == [("run", 0, ""), ("run", 2, "")]
    assert grown[-1] == 3
    assert stored(core) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("when", get_args(When))
async def test_who_fails_at_what_is_stored_is_told_of_it_once(core: Core, when: When) -> None:
    cell, told = await inserter(core)
    with fail(Inserter, Append, when=when) as planted:
        core.system.post(cell, entries(b"a"))
        await core.settle()
    assert planted.hits == 1
    assert told == [("late" if when == "before" else "run", 0, "")]
    assert stored(core) == [b"a"]


async def test_who_is_gone_is_told_of_it_late(core: Core) -> None:
    cell, told = await inserter(core)
    core.store.faults.sync_seconds = 1.0
    core.system.post(cell, entries(b"a"))
    core.system.exit(cell)
    await core.settle()
    assert (cell.exited, told) == (True, [])
    core.clock.advance(1.0)
    await core.settle()
    assert told == [("late", 0, "")]


async def test_what_belongs_to_a_removed_stream_is_refused_even_if_there_is_another_of_its_name(
    core: Core,
) -> None:
    cell, told = await inserter(core)
    peer = core.peer()
    await peer.ask("stream", native.RemoveRequest(2, "s"))
    await peer.ask("stream", native.OpenRequest(3, "s", 1))
    core.system.post(cell, entries(b"a"))
    await core.settle()
    assert told == [("run", -1, "stream.removed")]


@run_with(quotas=[Quota(who="somebody", push_bytes_per_second=1)])
async def test_what_quotas_refuse_is_told_and_not_stored(core: Core) -> None:
    cell, told = await inserter(core)
    large = Insertion("somebody", EntryKind.BYTES, [bytes(100)])
    core.system.post(cell, large)
    core.system.post(cell, large)
    await core.settle()
    assert sorted(told) == [("run", -1, "quota.rate"), ("run", 0, "")]
    assert stored(core) == [bytes(100)]
