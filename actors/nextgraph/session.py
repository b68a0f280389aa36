"""A client's connection as the broker's other actors know it, and the requests that come of it.

A request is answered to its connection, once: with one Answer, or with any number whose result is
PARTIAL_CONTENT and a last one. A client that gets none waits for ever, so whoever takes a request
answers it, whatever happens; and where that fails the engine does, see `BrokerActor`.
"""

from dataclasses import dataclass, field
from typing import Final

from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.records import Pin, RepoKey
from rillnode.actors.ports import Link
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.codecs.nextgraph.requests import RequestContent
from rillnode.codecs.nextgraph.responses import EmptyResponse, ResponseContent
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OverlayId

_EMPTY: Final = EmptyResponse()

_FAILED: Final = "actor.failed"


@dataclass(slots=True, eq=False)
class Session:
    """One admitted client; shared by all that it asks.

    Attributes:
        user: the key that it has proved to speak for.
        connection: its actor, which takes the answers and what is forwarded.
        link: for who sends much and must not send more than the client takes.
        attached: actors that keep something for it until they are sent a `Gone`.
        opened: what it has open until its end, by the id of the inner overlay.
        open: whether the connection has not ended; nothing is kept for one that has.
    """

    user: bytes
    connection: Cell
    link: Link
    attached: set[Cell] = field(default_factory=set[Cell])
    opened: dict[bytes, dict[RepoKey, Pin]] = field(default_factory=dict[bytes, dict[RepoKey, Pin]])
    open: bool = True

    def attach(self, actor: Cell) -> bool:
        """Have an actor told of the end; False where that has been, and it must keep nothing."""
        if self.open:
            self.attached.add(actor)
        return self.open

    def forward(self, message: "Forwarded") -> bool:
        """Send what the client has not asked for; one for whom too much waits is cut off (False).

        It would else have to miss some of it, and not know that.
        """
        if self.connection.is_full:
            self.open = False
            self.link.close("too much waits for it")
        else:
            self.connection.base.post(self.connection, message)
        return self.open

    @property
    def principal(self) -> str:
        """Whom quotas and streams know the user as."""
        return principal_of(self.user)


def principal_of(user: bytes) -> str:
    """Whom quotas and streams know a user as."""
    return f"nextgraph:{user.hex()}"


@dataclass(slots=True, eq=False)
class Asked:
    """A request, and the overlay that it is about; what comes after its one outcome is dropped.

    Attributes:
        stored: an event as it is stored, once it was checked; of other requests nothing.
    """

    session: Session
    id: int
    overlay: OverlayId
    content: RequestContent
    stored: bytes = b""
    _over: bool = field(default=False, init=False)

    def answer(
        self,
        content: ResponseContent = _EMPTY,
        result: ResultCode = ResultCode.OK,
        padding: bytes = b"",
    ) -> None:
        """Answer, or send one of several answers."""
        if self._over or not self.session.open:
            return
        self._over = result is not ResultCode.PARTIAL_CONTENT
        connection = self.session.connection
        connection.base.post(connection, Answer(self.id, result, content, padding))

    def refuse(self, result: ResultCode) -> None:
        """Answer with nothing but a result."""
        self.answer(_EMPTY, result)

    def fail(self, error: RillnodeError) -> None:
        """Answer that it cannot be carried out."""
        self.refuse(result_of(error))


@dataclass(frozen=True, slots=True)
class Answer:
    """To a connection: what its client is to be answered."""

    id: int
    result: ResultCode
    content: ResponseContent
    padding: bytes = b""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """To connections: an encoded message that their clients have not asked for."""

    plaintext: bytes


@dataclass(frozen=True, slots=True)
class Gone:
    """A connection has ended."""

    session: Session


class Refusal(ActorError):
    """A request cannot be carried out; `result` is what its client is told."""

    def __init__(self, result: ResultCode) -> None:
        super().__init__(f"nextgraph.{result.name.lower()}", f"refused: {result.name}")
        self.result = result


def result_of(error: RillnodeError) -> ResultCode:
    """What a client is told of an error.

    Where an actor has failed that is BROKER_ERROR: something is wrong here. Where other nodes serve
    the overlay it is OVERLAY_NOT_FOUND: it is not here. Of all else it is STORAGE_ERROR: nothing
    was confirmed, and what is sent again may succeed.
    """
    if isinstance(error, Refusal):
        return error.result
    if error.code == "store.elsewhere":
        return ResultCode.OVERLAY_NOT_FOUND
    return ResultCode.BROKER_ERROR if error.code == _FAILED else ResultCode.STORAGE_ERROR
