"""The index actor: one consumer's position in one partition, durable and never moving back."""

import logging
from dataclasses import dataclass
from typing import Final

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import Capability, LoadIndex, SavedIndexKey, SaveIndex
from rillnode.actors.streams.context import StreamContext
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.streams.index")


@dataclass(frozen=True, slots=True)
class GetPosition:
    """Ask for the saved position."""

    token: object


@dataclass(frozen=True, slots=True)
class EnsurePosition:
    """Ask for the saved position, and save 0 where none is."""

    token: object


@dataclass(frozen=True, slots=True)
class SavePosition:
    """Save a position unless a higher one is saved."""

    token: object
    index: int


@dataclass(frozen=True, slots=True)
class Position:
    """The answer to each request: what is durably saved, or why that could not be done."""

    key: SavedIndexKey
    token: object
    index: int | None
    error: StoreError | None = None


class Forget:
    """Tells an index actor to read the position again before the next request.

    Its stream was removed, with what was saved for it; or the store was repaired, and a removal
    that had failed has happened after all.
    """


FORGET: Final = Forget()

FENCED_MAX: Final = 5
"""A position is saved anew so often where another node saves the same one."""


class IndexActor(Worker):
    """Owner of one saved index.

    Every request is answered once, to the index service that made the actor, in the order of the
    requests, when all saves before it are durable.
    """

    mailbox_messages_max = 4_096
    on_failure = "restart"

    def __init__(self, context: StreamContext, key: SavedIndexKey, service: Cell) -> None:
        self._context = context
        self._key = key
        self._service = service
        self._loading = False
        self._loaded = False
        self._outdated = False
        self._durable: int | None = None
        self._highest = -1
        self._saves_in_flight = 0
        self._save_error: StoreError | None = None
        # So often in a row another node was first.
        self._fenced = 0
        self._waiting: list[GetPosition | SavePosition] = []
        self._unanswered: list[GetPosition | SavePosition] = []

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take requests from the index service and completed operations from the store."""
        match message:
            case GetPosition():
                self._doubt()
                self._request(message)
            case EnsurePosition(token=token):
                self._doubt()
                self._request(SavePosition(token, 0))
            case SavePosition():
                self._request(message)
            case LoadIndex():
                self._load(message)
            case SaveIndex():
                self._saved(message)
            case Forget():
                self._forget()
            case _:
                pass

    def _doubt(self) -> None:
        """Read the position again, where another node may have saved it since."""
        busy = self._saves_in_flight or self._unanswered
        if not busy and Capability.SHARED in self._context.store.capabilities:
            self._loaded = False

    def _request(self, request: GetPosition | SavePosition) -> None:
        if not self._loaded:
            self._waiting.append(request)
            if not self._loading:
                self._loading = True
                self._look()
            return
        if isinstance(request, SavePosition) and request.index > self._highest:
            self._highest = request.index
            self._saves_in_flight += 1
            self._context.store.submit(
                SaveIndex(reply_to=self.address, key=self._key, index=request.index)
            )
        self._unanswered.append(request)
        if not self._saves_in_flight:
            self._answer()

    def _look(self) -> None:
        operation = LoadIndex(reply_to=self.address, key=self._key)
        if self._context.store.read(operation):
            self._load(operation)

    def _load(self, operation: LoadIndex) -> None:
        if self._outdated:
            # It was told to forget while the store was looking.
            self._outdated = False
            self._look()
            return
        self._loading = False
        waiting, self._waiting = self._waiting, []
        if operation.error is not None:
            # Not known is not "none": those who ask are told, and the next request loads again.
            for request in waiting:
                answer = Position(self._key, request.token, None, operation.error)
                self.system.post(self._service, answer)
            return
        self._loaded = True
        self._durable = operation.index
        self._highest = -1 if operation.index is None else operation.index
        for request in waiting:
            self._request(request)

    def _saved(self, operation: SaveIndex) -> None:
        self._saves_in_flight -= 1
        if operation.error is None:
            self._durable = max(operation.index, self._durable or 0)
        else:
            self._save_error = operation.error
            if operation.error.code == "store.fenced":
                # Another node has: what is known here is read again before the next request.
                self._loaded = False
            logger.warning(
                "index_not_saved",
                extra={"stream": self._key.stream, "code": operation.error.code},
            )
        if not self._saves_in_flight:
            # After a failure the highest asked for is not saved: it may be asked for again.
            self._highest = -1 if self._durable is None else self._durable
            error = self._save_error
            if error is not None and error.code == "store.fenced" and self._fenced < FENCED_MAX:
                self._save_again()
            else:
                self._fenced = 0
                self._answer()

    def _save_again(self) -> None:
        """Another node has saved the position: look where it is now, and save what is beyond."""
        self._fenced += 1
        self._save_error = None
        requests, self._unanswered = self._unanswered, []
        for request in requests:
            self._request(request)

    def _forget(self) -> None:
        # Saves under way were submitted after the removal, and count.
        self._outdated = self._loading
        self._loaded = False
        self._durable = None
        if not self._saves_in_flight:
            self._highest = -1

    def _answer(self) -> None:
        requests, self._unanswered = self._unanswered, []
        error, self._save_error = self._save_error, None
        for request in requests:
            failed = error if isinstance(request, SavePosition) else None
            answer = Position(self._key, request.token, self._durable, failed)
            self.system.post(self._service, answer)
