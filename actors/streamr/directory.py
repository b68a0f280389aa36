"""The directory: asks the store for those who wait in tasks, and keeps logouts.

A task cannot be handed a completed operation, an actor can: who asks the directory with an
operation that reads gets the same operation back, completed.
"""

from dataclasses import dataclass
from typing import Final

from thespian.actors import ActorAddress

from rillnode.actors.storage import (
    FindStream,
    GetRecord,
    ListKeys,
    ListStreams,
    LogStore,
    PutRecord,
)
from rillnode.actors.streamr.catalogue import Catalogue
from rillnode.actors.streamr.sessions import Sessions
from rillnode.actors.worker import Worker
from rillnode.codecs.errors import RillnodeError

REVOKED_RECORD: Final = "streamr/revoked_tokens"


_PAGE_STREAMS: Final = 1_000

Question = FindStream | ListStreams | ListKeys


@dataclass(frozen=True, slots=True)
class LoadDirectory:
    """Learn what the store has of logouts and of streams; the answer is Done."""


@dataclass(frozen=True, slots=True)
class StoreRevocations:
    """Make the logouts durable; the answer is Done."""


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, or why it is not."""

    error: RillnodeError | None = None


@dataclass(frozen=True, slots=True)
class _Loading:
    """A LoadDirectory under way."""

    asker: ActorAddress


class Directory(Worker):
    """One per node that serves Streamr's clients."""

    on_failure = "resume"

    def __init__(self, store: LogStore, sessions: Sessions, catalogue: Catalogue) -> None:
        self._store = store
        self._sessions = sessions
        self._catalogue = catalogue

    def handle(self, message: object, sender: ActorAddress | None) -> None:
        """Take questions from tasks, and completed operations from the store."""
        match message:
            case FindStream() | ListStreams() | ListKeys() if sender is not None:
                message.token = sender
                self._read(message)
            case LoadDirectory() if sender is not None:
                self._read(GetRecord(token=_Loading(sender), key=REVOKED_RECORD))
            case StoreRevocations() if sender is not None:
                value = self._sessions.revocations.dump()
                put = PutRecord(
                    reply_to=self.address, token=sender, key=REVOKED_RECORD, value=value
                )
                self._store.submit(put)
            case FindStream() | ListStreams() | ListKeys() | GetRecord():
                self._completed(message)
            case PutRecord():
                self.send(message.token, Done(message.error))
            case _:
                pass

    def _read(self, operation: Question | GetRecord) -> None:
        operation.reply_to = self.address
        if self._store.read(operation):
            self._completed(operation)

    def _completed(self, operation: Question | GetRecord) -> None:
        if not isinstance(operation.token, _Loading):
            self.send(operation.token, operation)
        elif operation.error is not None:
            self.send(operation.token.asker, Done(operation.error))
        else:
            self._load(operation, operation.token)

    def _load(self, operation: Question | GetRecord, loading: _Loading) -> None:
        """Take over one page, and ask for the next."""
        after = ""
        match operation:
            case GetRecord(value=bytes() as stored):
                self._sessions.revocations.load(stored)
            case ListStreams(records=records):
                for record in records:
                    self._catalogue.tell(record)
                if len(records) < operation.limit:
                    self.send(loading.asker, Done())
                    return
                after = records[-1].name
            case _:
                pass
        self._read(ListStreams(token=loading, after=after, limit=_PAGE_STREAMS))
