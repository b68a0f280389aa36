"""Addresses that are no actors: those who ask from a task or from another thread."""

import asyncio
from typing import Any, ClassVar

from thespian.actors import ActorAddress, PoisonMessage

from rillnode.codecs.errors import ActorError


class Outside(ActorAddress):
    """An address that is no actor; nothing sent to this class itself is taken.

    Attributes:
        base: always None, where a cell has its system.
    """

    base: ClassVar[None] = None

    def __init__(self, name: str) -> None:
        super().__init__(name)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def deliver(self, message: Any) -> bool:
        """Take a message; False when nobody wants it any more."""
        del message
        return False


class Reply(Outside):
    """Where the answer to one awaited question goes: the first message settles the future."""

    def __init__(self, target: ActorAddress, future: "asyncio.Future[Any]") -> None:
        super().__init__("reply")
        self._target = target
        self._future = future

    def deliver(self, message: Any) -> bool:
        """Settle the future; a PoisonMessage is the failure of the one who was asked."""
        if self._future.done():
            return False
        if isinstance(message, PoisonMessage):
            details = str(message.details).strip().rpartition("\n")[2]
            self._fail("actor.failed", f"{self._target} failed to answer: {details}")
        else:
            self._future.set_result(message)
        return True

    def expire(self) -> None:
        """Nobody answered in time."""
        self._fail("actor.timeout", f"{self._target} did not answer in time")

    def lost(self) -> None:
        """The question ended as a dead letter."""
        self._fail("actor.gone", f"{self._target} has exited")

    def _fail(self, code: str, text: str) -> None:
        if not self._future.done():
            self._future.set_exception(ActorError(code, text))
