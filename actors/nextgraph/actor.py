"""What the broker's actors have in common: whatever comes of what they are asked, they tell.

Work that cannot be carried out raises a Refusal, which names what the client is told; an error of
the store, or of another actor, says that too (`result_of`). Anything else is a bug: the actor has
failed, and the engine tells who waits.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from thespian.actors import ActorAddress

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.session import Asked, Refusal, result_of
from rillnode.actors.storage import ReadOperation, WriteOperation
from rillnode.actors.storage.waiting import read, write
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.codecs.nextgraph.results import ResultCode

logger = logging.getLogger("rillnode.actors.nextgraph")

FENCED: Final = "store.fenced"

FENCED_MAX: Final = 100
"""Work is done anew so often where other nodes change what it follows from."""

Result = TypeVar("Result")
Reply = TypeVar("Reply", covariant=True)


async def anew(work: Callable[[], Awaitable[Result]]) -> Result:
    """Do work that reads, and then writes once: again, where another node was first."""
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
    """What actors of the broker ask of each other: the reply, or a Refusal, is sent back."""


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
