"""Back-pressure: who is told, and who waits, while a mailbox is over its bound.

A bound is never a reason to drop a message. An actor that sends to a mailbox over its bound is
told so once (`Congested`), and again when half of the bound is reached from above (`Relieved`);
in between it should hold back. Others wait in `AsyncioSystemBase.send`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from thespian.actors import ActorAddress, ActorSystemMessage

from rillnode.actors.engine.cell import Cell

logger = logging.getLogger("rillnode.actors.engine.system")

Post = Callable[[ActorAddress, object], None]


@dataclass(frozen=True, slots=True)
class Congested(ActorSystemMessage):
    """To an actor: what it sent is kept, but `target` has more waiting than it should."""

    target: Cell


@dataclass(frozen=True, slots=True)
class Relieved(ActorSystemMessage):
    """To an actor that was told `Congested`: `target` takes messages again, or has exited."""

    target: Cell


@dataclass(slots=True)
class _Jam:
    senders: dict[Cell, None] = field(default_factory=dict[Cell, None])
    waiters: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])


class Congestion:
    """The mailboxes of one system that are over their bound.

    Attributes:
        jams: looked at after each turn, so that a free system pays for one empty lookup.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self.jams: dict[Cell, _Jam] = {}

    def signal(self, target: Cell, sender: ActorAddress | None) -> None:
        """A message was put into a mailbox over its bound: tell its sender, once."""
        jam = self._jam(target)
        if isinstance(sender, Cell) and sender is not target and sender not in jam.senders:
            jam.senders[sender] = None
            self._post(sender, Congested(target))

    async def wait(self, target: Cell) -> None:
        """Wait until a mailbox is half empty or its actor has exited."""
        waiter = asyncio.get_running_loop().create_future()
        self._jam(target).waiters.append(waiter)
        await waiter

    def relieve(self, cell: Cell) -> None:
        """A turn of a jammed actor is over, or it has exited: let go on whom there is room for."""
        if len(cell.mailbox) > cell.kind.policy.mailbox_messages_max // 2:
            return
        jam = self.jams.pop(cell, None)
        if jam is None:
            return
        for sender in jam.senders:
            self._post(sender, Relieved(cell))
        # Those for whom there is no room after all wait again, in the same order.
        for waiter in jam.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _jam(self, target: Cell) -> _Jam:
        jam = self.jams.get(target)
        if jam is None:
            jam = self.jams[target] = _Jam()
            logger.warning(
                "mailbox_congested",
                extra={
                    "actor": target.name,
                    "actor_class": target.kind.policy.name,
                    "depth": len(target.mailbox),
                },
            )
        return jam
