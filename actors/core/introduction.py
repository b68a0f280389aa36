"""Tells the nodes that have the same logs where this one is, and what it serves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import LogStore, PutRecord
from rillnode.actors.log.nodes import NodeRecord
from rillnode.actors.log.waiting import write
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.core.introduction")

TELL_SECONDS: Final = 60.0
"""It is told so often: who has not told for longer than others is asked last."""

RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Tell:
    """Time to tell it."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The node stops: nobody is to be sent here any more."""


class IntroductionActor(Worker):
    """Introduces its node to the others of a shared log; one per node that has such a log.

    Args:
        store: in which it is told.
        introduce: says how the node is now.
    """

    on_failure = "restart"
    spare: ClassVar = {Leave: 1}

    def __init__(self, store: LogStore, introduce: Callable[[], NodeRecord]) -> None:
        self._store = store
        self._introduce = introduce
        self._is_leaving = False

    def started(self) -> None:
        """Tell it at once."""
        self.send(self.address, Tell())

    async def handle(self, message: Tell | Leave, sender: Cell | None) -> None:
        """Tell it, or take it back; where that fails, the others ask here in vain for a while."""
        record = self._introduce()
        match message:
            case Tell():
                if self._is_leaving:
                    return
                put, pause = PutRecord(key=record.key, value=record.encode()), TELL_SECONDS
            case Leave():
                self._is_leaving = True
                put, pause = PutRecord(key=record.key), 0.0
            case _:
                assert_never(message)
        try:
            await write(self._store, put)
        except StoreError as error:
            logger.warning("node_not_introduced", extra={"code": error.code})
            pause = RETRY_SECONDS
        if not self._is_leaving:
            self.wake_after(pause, Tell())
