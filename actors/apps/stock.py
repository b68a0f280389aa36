"""Thespian's own actors behind addresses of a node, as they stand.

What comes by a route is decoded for them, and what they send to its sender goes back along the
route, encoded: by functions of the application, for objects are never unpickled here. Among each
other, and with actors of the other form, they exchange objects.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from thespian.actors import Actor as StockActor, PoisonMessage

from rillnode.actors.apps.endpoint import Call, Endpoint, Houses
from rillnode.actors.apps.messages import Answer
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.outside import Asker
from rillnode.codecs.errors import ActorError, ConfigError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.routing.routes import local

logger = event_logger("rillnode.actors.apps.stock")

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


def as_bytes(message: object) -> bytes:
    """What an actor has sent, where that is bytes or a text.

    Raises:
        TypeError: it is anything else.
    """
    if isinstance(message, str):
        return message.encode()
    if isinstance(message, bytes | bytearray):
        return bytes(message)
    raise TypeError(f"{message!r:.80} is neither bytes nor a text: give spawn `encode`")


def is_stock(actor: object) -> bool:
    """Whether something is a class of Thespian's actors."""
    return isinstance(actor, type) and issubclass(actor, StockActor)


def stock_class(actor: type[StockActor], settings: dict[str, Any]) -> type[StockActor]:
    """A class of Thespian's actors with settings; without any, the class itself."""
    if not settings:
        return actor
    for name in ("blocking", "concurrency"):
        if name in settings:
            text = f"{name} is no setting of Thespian's actors, which take one message at a time"
            raise ConfigError("actor.settings", text)
    body = {"__module__": actor.__module__, "__qualname__": actor.__qualname__}
    meta: Any = type(actor)
    return cast(type[StockActor], meta(actor.__name__, (actor,), settings | body))


class Wire:
    """A codec of the messages of one endpoint's actor."""

    def __init__(self, hosting: Houses, decode: Decode, encode: Encode) -> None:
        self.hosting = hosting
        self.encode = encode
        self._decode = decode

    def take(self, endpoint: Endpoint, call: Call, sender: Cell | None = None) -> None:
        """Put a message into the actor's mailbox; one that cannot be read is refused."""
        message = call.message.value
        if message is None:
            try:
                message = self._decode(call.message.payload)
            except Exception as error:
                logger.warning("not_decoded", extra={"actor": endpoint.address}, exc_info=error)
                text = f"{endpoint.address} cannot decode this payload"
                self.hosting.not_handled(call, RequestError("message.decode", text))
                return
        address = RouteAddress(self, endpoint, call) if sender is None else sender
        self.hosting.system.post(endpoint.cell, message, address)


class RouteAddress(Asker):
    """The address of a sender along a route, for Thespian's actors.

    Two are equal where answers go the same way.
    """

    def __init__(self, wire: Wire, endpoint: Endpoint, call: Call) -> None:
        super().__init__(endpoint.address)
        self._wire = wire
        self._endpoint = endpoint
        self._call = call

    @property
    def _way(self) -> tuple[object, object]:
        return id(self._call.origin), self._call.message.return_route

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RouteAddress) and self._way == other._way

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._way)

    def handed_to(self, cell: Cell) -> None:
        """An instance has a question of this node: when it goes the asker is told."""
        if self._call.question is not None:
            self._call.question.held_by(cell)

    def let_go(self) -> None:
        """No actor has it now."""
        if self._call.question is not None:
            self._call.question.let_go()

    def fail(self, error: RillnodeError) -> None:
        """Nothing comes of the message."""
        self._wire.hosting.not_handled(self._call, error)

    def deliver(self, message: Any) -> bool:
        """Send an answer; False where nobody waits for one."""
        call, hosting, own = self._call, self._wire.hosting, local(self._endpoint.key)
        if isinstance(message, PoisonMessage):
            self.fail(ActorError("actor.failed", f"{self._endpoint.address} failed to answer"))
            return True
        try:
            payload: Any = self._wire.encode(message)
            if not isinstance(payload, bytes):
                raise TypeError(f"encode returned {payload!r:.80}, and no bytes")
        except Exception as error:
            if call.question is not None:
                return call.question.answer(Answer((own,), b"", message))
            logger.warning("not_encoded", extra={"actor": self._endpoint.address}, exc_info=error)
            text = f"An answer of {self._endpoint.address} has no form in bytes: its log says why"
            self.fail(RequestError("message.encode", text))
            return True
        if call.question is not None:
            return call.question.answer(Answer((own,), payload, message))
        if not call.message.return_route:
            return False
        try:
            hosting.answer(call, own, payload, None)
        except RequestError as too_large:
            self.fail(too_large)
        call.answered = True
        return True


def made_stock(
    hosting: Houses, actor: type[StockActor], args: tuple[Any, ...], settings: dict[str, Any]
) -> Cell:
    """Make one of Thespian's actors, with its instance at once.

    Raises:
        Exception: whatever its constructor raises.
    """
    made: Any = stock_class(actor, settings)
    given: Any = partial(made, *args) if args else made
    return hosting.system.create_child(None, given)
