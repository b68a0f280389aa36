"""Mailboxes: how messages get into them, how many may wait, and whose turn is next.

A mailbox is bounded by number and bytes. What somebody waits for is refused above the bound, and he
is told (`actor.busy`); an actor's own `send` raises that. Never refused are timers, completed
operations and what the system itself sends. News that nobody waits for is put together with what
waits of its kind, where its class can (`merged`), taken as far as the class of the actor says that
whoever sends it bounds it (`Worker.spare`), or else dropped, as a dead letter that is counted. From
outside, `room` waits until there is room.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from thespian.actors import (
    ActorAddress,
    ActorExitRequest,
    ActorSystemMessage,
    InvalidActorAddress,
)

from rillnode.actors.engine.cell import EMPTY, FAILURES, GONE, Cell, Envelope
from rillnode.actors.engine.dead_letters import DeadLetter, DeadLetters, Reason, error_of
from rillnode.actors.engine.outside import Asker, Outside
from rillnode.actors.engine.waiting import Continuation
from rillnode.codecs.errors import ActorError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.engine.system")

Size = Callable[[Any], int]
"""Bytes of a message."""


class Held(list[Envelope]):
    """Mailbox of an actor that takes no new message now; those that come wait, in order.

    It is true even while it is empty, so that it is not taken for `EMPTY`.

    Attributes:
        at_once: what is taken all the same: completed operations and the request to exit. The
            actor is in the queue while there is any.
        after: called when work that was cancelled has ended; None: the handler's end is waited for.
    """

    __slots__ = ("_enqueue", "after", "at_once")

    def __init__(self, enqueue: Callable[[], None]) -> None:
        super().__init__()
        self._enqueue = enqueue
        self.at_once: list[Envelope] = []
        self.after: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return True

    def append(self, envelope: Envelope, /) -> None:
        """Keep a message for later, or have it taken soon."""
        if _does_not_wait(envelope):
            if not self.at_once:
                self._enqueue()
            self.at_once.append(envelope)
        else:
            super().append(envelope)

    def put_back(self, left: list[Envelope], known: int) -> None:
        """Keep messages in front of the others; the first `known` are known to wait."""
        at_once = [one for one in left[known:] if _does_not_wait(one)]
        if at_once:
            left = [one for one in left if not _does_not_wait(one)]
            if not self.at_once:
                self._enqueue()
            self.at_once[:0] = at_once
        self[:0] = left

    def take(self) -> list[Envelope]:
        """What is not to wait."""
        taken, self.at_once = self.at_once, []
        return taken


class _Waited(list[Envelope]):
    """Mailbox of an actor that was held: its first messages have waited.

    They need not be looked at again where the next handler waits, too, or a long mailbox would be
    looked through for each message of it.

    Attributes:
        known: how many of the first are known to wait.
    """

    __slots__ = ("known",)

    known: int


def _is_full(cell: Cell, size: int) -> bool:
    kind = cell.kind
    return (
        len(cell.mailbox) >= kind.mailbox_messages_max
        or cell.waiting_bytes + size > kind.mailbox_bytes_max
    )


def _does_not_wait(envelope: Envelope) -> bool:
    message, sender = envelope
    return isinstance(sender, Continuation) or isinstance(message, ActorExitRequest)


def _merge(mailbox: Any, message: Any) -> bool:
    """Have one message of a mailbox stand for a later one, too, if there is such a one."""
    for place in range(len(mailbox) - 1, -1, -1):
        earlier, sender = mailbox[place]
        if earlier.__class__ is message.__class__ and sender is None:
            both = earlier.merged(message)
            if both is not None:
                mailbox[place] = both, sender
                return True
    return False


class Mailboxes:
    """Puts messages into mailboxes, and keeps the queue of actors that have something to do.

    Messages of one sender to one actor are handled in the order in which they were posted.

    Attributes:
        ready: actors with something to do, in the order in which they got it.
        held: actors that take no new message now.
        full: actors whose mailboxes were full, and who waits for room in each.
        sizes: how large messages are, by class; others are not counted.
        pump: gives turns; set by who does.
        fresh_context: a context of the system's own for what the loop calls, lest actors have that
            of whoever was the first to send.
    """

    def __init__(
        self, system: object, letters: DeadLetters, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._system = system
        self._letters = letters
        self._call_soon = loop.call_soon
        self.fresh_context = copy_context().copy
        self.ready: deque[Cell] = deque()
        self.held: dict[Cell, None] = {}
        self.full: dict[Cell, list[asyncio.Future[None]]] = {}
        self.sizes: dict[type, Size] = {}
        self.pump: Callable[[], None]
        self.pump_called = False
        letters.post = self.post

    def post(self, target: ActorAddress, message: Any, sender: Any = None) -> None:
        """Put a message into an actor's mailbox; on the loop's thread, never waits.

        Raises:
            ActorError: `actor.busy`, an actor sends to one whose mailbox is full.
            InvalidActorAddress: `target` is no address at all.
        """
        cell: Any = target
        if cell.__class__ is not Cell or cell.base is not self._system:
            self._post_outside(target, message, sender)
            return
        mailbox = cell.mailbox
        if mailbox:
            kind = cell.kind
            if (
                len(mailbox) >= kind.mailbox_messages_max
                or cell.waiting_bytes > kind.mailbox_bytes_max
                or message.__class__ in self.sizes
            ) and not self._admits(cell, message, sender):
                return
            mailbox.append((message, sender))
        elif mailbox is EMPTY:
            cell.mailbox = [(message, sender)]
            self.ready.append(cell)
            if not self.pump_called:
                self.pump_called = True
                self._call_soon(self.pump, context=self.fresh_context())
        else:
            self._leave(cell, message, sender, "gone")

    def _leave(self, cell: Cell, message: Any, sender: Any, reason: Reason) -> None:
        """An actor has exited before it came to a message."""
        if isinstance(sender, Continuation):
            self.too_late(cell, message, sender)
        else:
            self._letters.bury(cell, message, sender, reason)

    def lose(self, target: ActorAddress, message: Any, sender: ActorAddress | None = None) -> None:
        """The loop has ended before a message came to it; any thread, so nobody can be told."""
        self._letters.add(DeadLetter(target, message, sender, "gone"))

    def too_late(self, cell: Cell, operation: Any, then: Continuation) -> None:
        """Whoever asked for an operation gets the outcome, though its instance is gone."""
        try:
            then.late(operation)
        except FAILURES as error:  # what is behind it must not wait for ever
            cell.failed("late", error)

    def at_once(self, bring: Callable[[], None]) -> None:
        """Let a callback of the loop post what it brings, and give turns now, not a round later.

        Within a turn, and where a pump is due already, it only posts.
        """
        if self.pump_called:
            bring()
            return
        self.pump_called = True
        try:
            bring()
        finally:
            self.pump()

    def enqueue(self, cell: Cell) -> None:
        """Give an actor a turn soon."""
        self.ready.append(cell)
        if not self.pump_called:
            self.pump_soon()

    def pump_soon(self) -> None:
        """Have the pump go on when the loop had its turn."""
        self.pump_called = True
        self._call_soon(self.pump, context=self.fresh_context())

    def _post_outside(self, target: Any, message: Any, sender: Any) -> None:
        if isinstance(target, Cell):
            target.base.post_threadsafe([(target, message, sender)])
        elif isinstance(target, Outside):
            if not target.deliver(message):
                self._letters.bury(target, message, sender, "unwanted")
        elif isinstance(target, ActorAddress):
            self._letters.bury(target, message, sender, "unknown")
        else:
            raise InvalidActorAddress(target, "not an address")

    # Bounds ----------------------------------------------------------------------------------

    def size_of(self, message: Any) -> int:
        """Bytes of a message, as far as they count."""
        measure = self.sizes.get(message.__class__)
        return 0 if measure is None else measure(message)

    def _admits(self, cell: Cell, message: Any, sender: Any) -> bool:
        """Whether a mailbox takes a message though it is full, if it is."""
        size = self.size_of(message)
        if _is_full(cell, size) and self._refuses(cell, message, sender):
            return False
        cell.waiting_bytes += size
        return True

    def _refuses(self, cell: Cell, message: Any, sender: Any) -> bool:
        if cell not in self.full:
            self.full[cell] = []
            extra = cell.logged(depth=len(cell.mailbox), bytes=cell.waiting_bytes)
            logger.warning("mailbox_full", extra=extra)
        if sender is cell or isinstance(sender, Continuation):
            return False
        if isinstance(message, ActorSystemMessage):
            return False
        if isinstance(sender, Asker) or type(message) in self._letters.outcomes:
            self._letters.bury(cell, message, sender, "busy")
            return True
        if sender.__class__ is Cell:
            raise error_of(cell, "busy")
        return not self._takes_news(cell, message, sender)

    def _takes_news(self, cell: Cell, message: Any, sender: Any) -> bool:
        """Whether a full mailbox takes what nobody waits for; else it is merged, or dropped."""
        kind, merges = cell.kind, hasattr(message, "merged")
        if merges and _merge(cell.mailbox, message):
            return False
        beyond = len(cell.mailbox) - kind.mailbox_messages_max
        if (merges or type(message) in kind.spare) and beyond < kind.spare_messages:
            return True
        self._letters.bury(cell, message, sender, "busy")
        return False

    async def room(self, cell: Cell, message: Any) -> None:
        """Wait until a mailbox has room for a message, or its actor has exited."""
        size = self.size_of(message)
        while cell.mailbox and _is_full(cell, size):
            waiter = asyncio.get_running_loop().create_future()
            self.full.setdefault(cell, []).append(waiter)
            await waiter

    def relieve(self, cell: Cell) -> None:
        """A turn of an actor with a full mailbox is over, or it has exited: is there room now?"""
        if (
            len(cell.mailbox) > cell.kind.mailbox_messages_max // 2
            or cell.waiting_bytes > cell.kind.mailbox_bytes_max // 2
        ):
            return
        # Those for whom there is no room after all wait again, in the same order.
        for waiter in self.full.pop(cell, ()):
            if not waiter.done():
                waiter.set_result(None)

    # Holding ---------------------------------------------------------------------------------

    def hold(self, cell: Cell) -> Held:
        """Let an actor take nothing new."""
        mailbox = cell.mailbox
        if isinstance(mailbox, Held):
            return mailbox
        held = Held(partial(self.enqueue, cell))
        held.put_back([*mailbox], 0)
        cell.mailbox = held
        self.held[cell] = None
        return held

    def release(self, cell: Cell) -> None:
        """Let an actor take what has waited."""
        held = cell.mailbox
        if not isinstance(held, Held):
            return
        del self.held[cell]
        waited = _Waited((*held.at_once, *held))
        waited.known = 0 if held.at_once else len(waited)
        cell.mailbox = waited or EMPTY
        if waited and not held.at_once:  # else it is in the queue
            self.enqueue(cell)
        elif not waited and cell in self.full:
            self.relieve(cell)

    def forget_own(self, cell: Cell, error: ActorError) -> None:
        """Take out what an instance that is gone has sent to itself: timers that have fired.

        Where a message bears who waits for it, he is told.
        """
        mailbox = cell.mailbox
        own = [message for message, sender in mailbox if sender is cell]
        if own:
            cell.mailbox = [one for one in mailbox if one[1] is not cell] or EMPTY
            for message in own:
                self._letters.tell(message, cell, error)

    def known(self, batch: list[Envelope], handled: int) -> int:
        """How many of what is left of a batch are known to wait while the actor is held."""
        return max(0, batch.known - handled) if isinstance(batch, _Waited) else 0

    def put_back(self, cell: Cell, left: list[Envelope], known: int = 0) -> None:
        """A turn ends before it came to all: what is left waits on, first."""
        mailbox = cell.mailbox
        if mailbox is GONE:
            for message, sender in left:
                self._leave(cell, message, sender, "unhandled")
        elif isinstance(mailbox, Held):
            mailbox.put_back(left, known)
        elif mailbox:
            mailbox[:0] = left
        elif left:
            cell.mailbox = left
            self.enqueue(cell)
