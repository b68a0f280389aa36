"""Questions that this node's actors and its application ask, until each has its outcome.

Each has an address of its own, which nobody can guess: an answer finds it by its route, wherever
it comes from. Who is asked by an actor of this node, and waits for that actor himself, would wait
for ever; so a question that closes such a circle is not asked.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from rillnode.actors.apps.messages import Answer
from rillnode.actors.core.router import Router
from rillnode.actors.engine.cell import Cell
from rillnode.actors.ports import Entropy
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, CodecError, RequestError, RillnodeError
from rillnode.codecs.routing.routes import Route, WireMessage, local

if TYPE_CHECKING:
    from rillnode.actors.apps.endpoint import Endpoint

QUESTIONS_MAX: Final = 10_000
"""Questions open at a time, of all actors of an application. Own choice."""


class Question:
    """One question; settled once, by an answer or by why there is none.

    Attributes:
        route: leads to it.
        asker: the actor that takes no other message until it is settled; None: it asks nobody
            waiting, or it is no actor.
        target: the actor of this node that is to answer it, as far as that is known.
        holder: the actor whose instance has it, and has not answered it yet.
    """

    __slots__ = ("asker", "future", "holder", "route", "target")

    def __init__(
        self, route: Route, future: "asyncio.Future[Answer]", asker: "Endpoint | None"
    ) -> None:
        self.route = route
        self.future = future
        self.asker = asker
        self.target: Endpoint | None = None
        self.holder: Cell | None = None

    @property
    def settled(self) -> bool:
        """Whether it has its outcome."""
        return self.future.done()

    def leads_to(self, target: "Endpoint") -> None:
        """An actor of this node is to answer it.

        Raises:
            ActorError: `actor.cycle`, that actor waits for the asker.
        """
        if self.asker is not None and _waits_for(target, self.asker):
            text = f"{target.address} waits for an answer of {self.asker.address}"
            raise ActorError("actor.cycle", f"{text}: neither would ever answer")
        self.target = target

    def held_by(self, cell: Cell) -> None:
        """An instance keeps it, to answer later: when that goes, the asker is told."""
        if not self.settled:
            self.holder = cell
            cell.own(self)

    def answer(self, answer: Answer) -> bool:
        """Settle it; False where it was settled before."""
        if self.future.done():
            return False
        self.let_go()
        self.future.set_result(answer)
        return True

    def fail(self, error: RillnodeError) -> None:
        """Nothing comes of it; harmless once it is settled."""
        self.let_go()
        if not self.future.done():
            self.future.set_exception(error)

    drop = fail

    def let_go(self) -> None:
        """Nobody is to answer it any more."""
        self.target = None
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.disown(self)


class Questions:
    """Those that are open.

    Args:
        router: answers come by it.
        entropy: source of random bytes.

    Attributes:
        cell: the actor that answers by a route come to.
    """

    cell: Cell

    def __init__(self, router: Router, entropy: Entropy) -> None:
        self._router = router
        self._entropy = entropy
        self._open: dict[bytes, Question] = {}

    def open(self, asker: "Endpoint | None") -> Question:
        """Begin a question; whoever does closes it.

        Raises:
            ActorError: `actor.busy`, too many are open.
        """
        if len(self._open) >= QUESTIONS_MAX:
            raise ActorError("actor.busy", f"{QUESTIONS_MAX:,} questions are open: try again")
        address = self._entropy(8).hex().encode()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        question = self._open[address] = Question((local(address),), future, asker)
        self._router.register(address, self.cell)
        if asker is not None:
            asker.asking[question] = None
        return question

    def close(self, question: Question) -> None:
        """Nobody waits any more."""
        address = question.route[0].value
        self._open.pop(address, None)
        self._router.unregister(address)
        if question.asker is not None:
            question.asker.asking.pop(question, None)
        question.let_go()
        question.future.cancel()
        if not question.future.cancelled():
            question.future.exception()  # seen, though nobody may have awaited it

    def find(self, address: bytes) -> Question | None:
        """The question that has an address."""
        return self._open.get(address)


def settle(question: Question, wire: WireMessage) -> None:
    """An answer has come by its route."""
    failure = failure_in(wire.payload)
    if failure is None:
        question.answer(Answer(wire.return_route, wire.payload))
    else:
        question.fail(failure)


def failure_in(payload: bytes) -> RequestError | None:
    """What a payload says if it is a node's refusal."""
    if not native.is_native(payload):
        return None
    try:
        response: Any = native.decode_response(payload)
    except CodecError:
        return None
    return native.failure_of(response) if isinstance(response, native.Failure) else None


def _waits_for(first: "Endpoint", last: "Endpoint") -> bool:
    """Whether an actor waits for another, or for one that does, or is that itself."""
    seen: set[Endpoint] = set()
    waiting = [first]
    while waiting:
        endpoint = waiting.pop()
        if endpoint is last:
            return True
        if endpoint not in seen:
            seen.add(endpoint)
            waiting += [one.target for one in endpoint.asking if one.target is not None]
    return False
