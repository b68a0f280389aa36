"""Tests what lives no longer than a connection, and who is told of its end."""

from functools import partial

import pytest

from core_support import Core
from rillnode.actors.core.delivery import LinkLost, Origin
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native

NAME = f"{SubscriptionActor.__module__}.{SubscriptionActor.__qualname__}"


async def test_who_subscribed_and_is_gone_when_that_is_handled_leaves_nothing(core: Core) -> None:
    peer, other = core.peer(), core.peer()
    (opened,) = await peer.ask("stream", native.OpenRequest(1, "s", 1))
    address = bytes(opened.stream.partitions[0].address)
    peer.origin.end()
    await peer.ask(address, native.SubscribeRequest(9, 0, 1_000))
    assert core.system.stats()[NAME].cells == 0
    assert not peer.origin.attached
    await other.ask(address, native.SubscribeRequest(9, 0, 1_000))
    assert core.system.stats()[NAME].cells == 1


class Watcher(Worker):
    """Notes what it is told."""

    def __init__(self, number: int, told: list[tuple[int, Origin]]) -> None:
        self._number = number
        self._told = told

    def handle(self, message: object, sender: Cell | None) -> None:
        if isinstance(message, LinkLost):
            self._told.append((self._number, message.origin))


async def test_who_watches_a_connection_is_told_of_its_end_once_and_in_order(core: Core) -> None:
    told: list[tuple[int, Origin]] = []
    cells = [core.system.spawn(partial(Watcher, number, told)) for number in range(4)]
    origin = Origin("noise:peer", 65_000, native=True)
    for cell in (*cells[:3], cells[0]):
        origin.watch(cell)
    for _ in range(2):
        origin.unwatch(cells[1])
    origin.end()
    origin.end()
    await core.settle()
    assert told == [(0, origin), (2, origin)]
    # Who comes too late is told at once.
    origin.watch(cells[3])
    await core.settle()
    assert told[2:] == [(3, origin)]


async def test_one_more_who_watches_is_not_compared_with_all_others(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link is watched for each overlay that it is part of: thousands of times, perhaps."""
    compared = 0

    def equal(cell: Cell, other: object) -> bool:
        nonlocal compared
        compared += 1
        return cell is other

    cells = [core.system.spawn(partial(Watcher, number, [])) for number in range(100)]
    origin = Origin("noise:peer", 65_000, native=True)
    monkeypatch.setattr(Cell, "__eq__", equal)
    for cell in cells:
        origin.watch(cell)
    for cell in cells:
        origin.unwatch(cell)
    assert compared < len(cells)
