"""Services that answer each message on its own: echo, uppercase, discovery.

An answer's return route is the address that the message was sent to, so that each of a service's
names answers as itself.
"""

from collections.abc import Callable

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.router import Router
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import CodecError
from rillnode.codecs.events import event_logger
from rillnode.codecs.ockam import hub

logger = event_logger("rillnode.actors.ockam.answering")

Answer = Callable[[bytes, Origin], bytes | None]
"""Makes a payload's answer, or None where it has none; raises CodecError for one it cannot read."""


def echo(payload: bytes, _: Origin) -> bytes:
    """Answer with what came."""
    return payload


def uppercase(payload: bytes, _: Origin) -> bytes:
    """Answer in capitals; raises as `hub.uppercase` does."""
    return hub.uppercase(payload)


class AnsweringActor(Worker):
    """A hub service such as `echo`; what it cannot read has no answer, as in released nodes."""

    on_failure = "resume"

    def __init__(self, router: Router, answer: Answer) -> None:
        self._router = router
        self._answer = answer

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Answer requests."""
        for wire in message.messages:
            try:
                payload = self._answer(wire.payload, message.origin)
            except CodecError as error:
                logger.info("bad_request", extra={"code": error.code})
                continue
            if payload is not None:
                own_address = wire.onward_route[0].value
                self._router.reply(message.origin, own_address, [(wire.return_route, payload)])
