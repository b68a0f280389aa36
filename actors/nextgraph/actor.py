"""Answers every question to the broker's actors, whatever comes of it.

Work that cannot be carried out raises a Refusal, which names what the client is told; an error of
the store, or of another actor, says that too (`result_of`). Anything else is a bug: the actor has
failed, and the engine tells who waits.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from thespian.actors import ActorAddress

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.waiting import Signal
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import ReadOperation, WriteOperation
from rillnode.actors.log.waiting import read, write
from rillnode.actors.nextgraph.context import BrokerContext, Key, Table
from rillnode.actors.nextgraph.session import Asked, Refusal, Session, result_of
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.nextgraph.results import ResultCode

logger = event_logger("rillnode.actors.nextgraph")

FENCED: Final = "store.fenced"

FENCED_MAX: Final = 100
"""Work is done anew so often where other nodes change what it follows from."""

UNUSED_SECONDS: Final = 60.0
"""How long an actor stays for what there is not: an overlay or a topic that nobody has made."""

Result = TypeVar("Result")
Reply = TypeVar("Reply", covariant=True)


async def anew(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run a read-modify-write, retrying on conflict."""
    for _ in range(FENCED_MAX):
        try:
            return await work()
        except StoreError as error:
            if error.code != FENCED:
                raise
    return await work()


def logged(error: RillnodeError) -> ResultCode:
    """What is told of an error, which is noted where it is not a client's."""
    if not isinstance(error, Refusal):
        logger.warning("request_failed", extra={"code": error.code, "reason": error.text})
    return result_of(error)


class Question(Generic[Reply]):
    """A question between actors of the broker: the reply, or a Refusal, is sent back."""


class BrokerActor(Worker):
    """An actor of the broker; it carries one thing out after the other.

    A new instance knows nothing of what is stored, and reads it again when it is needed.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def read(self, *operations: ReadOperation) -> None:
        """Read from the store; raises the first error of the operations."""
        await read(self._context.streams.store, *operations)

    async def write(self, *operations: WriteOperation) -> None:
        """Write to the store, until it is durable; raises the first error of the operations."""
        await write(self._context.streams.store, *operations)

    def followed_by(self, session: Session) -> str:
        """The stream of which a client is sent what comes, if that is this actor's; or nothing."""
        return ""

    async def carry_out(self, asked: Asked, work: Awaitable[None]) -> None:
        """Carry a request out; what cannot be is its answer."""
        try:
            await work
        except RillnodeError as error:
            asked.refuse(logged(error))

    async def attempt(self, work: Awaitable[None]) -> None:
        """Carry out what nobody waits for."""
        try:
            await work
        except RillnodeError as error:
            logged(error)

    async def reply(self, sender: ActorAddress | None, work: Awaitable[object]) -> None:
        """Carry out what another actor asks; what cannot be is the reply."""
        try:
            reply = await work
        except RillnodeError as error:
            reply = Refusal(logged(error))
        if sender is not None:
            self.send(sender, reply)

    async def question(self, actor: Cell, question: Question[Result]) -> Result:
        """Ask another actor.

        Raises:
            Refusal: that is the reply.
            ActorError: there is none.
        """
        reply: Any = await self.ask(actor, question)
        if isinstance(reply, Refusal):
            raise reply
        answer: Result = reply
        return answer

    async def questions(
        self, actors: Sequence[Cell], question: Question[Result]
    ) -> Sequence[Result]:
        """Ask several actors the same, at once; raises as `question`, the first error."""
        if len(actors) == 1:  # as mostly
            return [await self.question(actors[0], question)]
        replies = _Replies[Result](len(actors))
        for place, actor in enumerate(actors):
            self.begin(replies.take(place, self.question(actor, question)), replies.failed)
        return await replies.all()


class _Replies(Generic[Result]):
    """What several actors reply to one that waits for all of them."""

    def __init__(self, count: int) -> None:
        self._replies: dict[int, Result] = {}
        self._left = count
        self._error: RillnodeError | None = None
        self._done = Signal()

    async def take(self, place: int, reply: Awaitable[Result]) -> None:
        """Wait for one."""
        self._replies[place] = await reply
        self._one_less()

    def failed(self, error: RillnodeError) -> None:
        """There is none of one."""
        self._error = self._error or error
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    async def all(self) -> Sequence[Result]:
        """Wait until nothing more comes; all that came, in order."""
        if self._left:
            await self._done
        if self._error is not None:
            raise self._error
        return [reply for _, reply in sorted(self._replies.items())]


class Unused:
    """Time to end for an actor of a table, if there is nothing to it."""


class LodgerActor(BrokerActor, ABC, Generic[Key]):
    """An actor of a table, which ends when what it stands for is not there and nobody asks.

    Subclasses say in `unused` whether there is nothing to them, and `leave_later` whenever they
    have found that.
    """

    idle_seconds = UNUSED_SECONDS

    def __init__(self, context: BrokerContext, table: Table[Key], key: Key) -> None:
        super().__init__(context)
        self._table = table
        self._key = key
        self._expiry: TimerHandle | None = None
        self._leaving = False

    @property
    @abstractmethod
    def unused(self) -> bool:
        """Whether what it stands for is not there."""

    def leave_later(self) -> None:
        """End if nobody asks for a while."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self.wake_after(UNUSED_SECONDS, Unused())

    def leave(self) -> None:
        """End now, if there is nothing to it still."""
        if self.unused:
            self._leaving = True
            self._table.forget(self._key)
            self.system.exit(self.address)

    def passed_on(self, message: object, sender: ActorAddress | None) -> bool:
        """Whether this ends, and a message that was on its way is for who has the place now."""
        if self._leaving:
            self.system.forward(self._table.cell(self._key), message, sender)
        return self._leaving
