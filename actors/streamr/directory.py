"""The directory: asks the store for those who wait in tasks, keeps logouts, hears of others'.

A task cannot be handed a completed operation, an actor can: who asks the directory with an
operation that reads gets the same operation back, completed.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Clock
from rillnode.actors.storage import (
    FindStream,
    GetRecord,
    ListKeys,
    ListRecords,
    ListStreams,
    LogStore,
    PutRecords,
)
from rillnode.actors.storage.watch import SharedStore, WatchValues
from rillnode.actors.streamr.catalogue import Catalogue
from rillnode.actors.streamr.revocations import REVOKED_PREFIX, WHOLE_LIST
from rillnode.actors.streamr.sessions import Sessions
from rillnode.codecs.errors import RillnodeError, StoreError

logger = logging.getLogger("rillnode.actors.streamr.directory")

RETRY_SECONDS: Final = 1.0

_PAGE_REVOCATIONS: Final = 500
"""So many are written or read at once: a write of them fits what every store takes."""

Question = FindStream | ListStreams | ListKeys
_Page = GetRecord | ListRecords | ListStreams


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


class _WatchAgain:
    """Time to hear of other nodes' logouts again."""


class Directory(Worker):
    """One per node that serves Streamr's clients."""

    on_failure = "resume"
    essential = True

    def __init__(
        self, store: LogStore, sessions: Sessions, catalogue: Catalogue, clock: Clock
    ) -> None:
        self._store = store
        self._revocations = sessions.revocations
        self._catalogue = catalogue
        self._clock = clock

    def handle(
        self,
        message: LoadDirectory
        | StoreRevocations
        | FindStream
        | ListStreams
        | ListKeys
        | GetRecord
        | ListRecords
        | PutRecords
        | WatchValues
        | _WatchAgain,
        sender: ActorAddress | None,
    ) -> None:
        """Take questions from tasks, and completed operations from the store."""
        match message:
            case LoadDirectory():
                if sender is not None:
                    # First, so that nothing is missed between the two.
                    self._watch()
                    self._read(GetRecord(token=_Loading(sender), key=WHOLE_LIST))
            case StoreRevocations():
                if sender is not None:
                    self._save(sender)
            case FindStream() | ListStreams() | ListKeys():
                if sender is not None:
                    message.token = sender
                    self._read(message)
                else:
                    self._completed(message)
            case GetRecord() | ListRecords():
                self._completed(message)
            case PutRecords():
                self._saved(message)
            case WatchValues():
                self._heard(message)
            case _WatchAgain():
                self._watch()
            case _:
                assert_never(message)

    def _read(self, operation: Question | _Page) -> None:
        operation.reply_to = self.address
        if self._store.read(operation):
            self._completed(operation)

    def _completed(self, operation: Question | _Page) -> None:
        loading = operation.token
        if not isinstance(loading, _Loading):
            self.send(loading, operation)
        elif operation.error is not None:
            self.send(loading.asker, Done(operation.error))
        else:
            try:
                self._load(operation, loading)
            except StoreError as error:
                self.send(loading.asker, Done(error))

    # Loading ---------------------------------------------------------------------------------

    def _load(self, operation: Question | _Page, loading: _Loading) -> None:
        """Take over one page, and ask for the next."""
        match operation:
            case GetRecord():
                if operation.value is not None:
                    self._revocations.learn_whole_list(operation.value, self._clock.now_ms())
                self._list_revocations(loading, after="")
            case ListRecords(records=records):
                self._learn(records)
                if len(records) == operation.limit:
                    self._list_revocations(loading, after=records[-1][0])
                else:
                    self._save(loading)
            case ListStreams(records=records):
                for record in records:
                    self._catalogue.tell(record)
                if operation.more:
                    self._list_streams(loading, after=records[-1].name)
                else:
                    self.send(loading.asker, Done())
            case _:
                pass

    def _list_revocations(self, loading: _Loading, after: str) -> None:
        page = ListRecords(
            token=loading, prefix=REVOKED_PREFIX, after=after, limit=_PAGE_REVOCATIONS
        )
        self._read(page)

    def _list_streams(self, loading: _Loading, after: str) -> None:
        self._read(ListStreams(token=loading, after=after))

    # Logouts ---------------------------------------------------------------------------------

    def _save(self, asker: ActorAddress | _Loading) -> None:
        """Write what is not stored yet, page by page; then answer, or go on with loading."""
        values = self._revocations.unsaved(_PAGE_REVOCATIONS)
        if values:
            put = PutRecords(reply_to=self.address, token=asker, records=values)
            self._store.submit(put)
        elif isinstance(asker, _Loading):
            self._list_streams(asker, after="")
        else:
            self.send(asker, Done())

    def _saved(self, put: PutRecords) -> None:
        asker: ActorAddress | _Loading = put.token
        if put.error is None:
            self._revocations.saved(list(put.records))
            self._save(asker)
        else:
            self.send(asker.asker if isinstance(asker, _Loading) else asker, Done(put.error))

    def _learn(self, values: Sequence[tuple[str, bytes | None]]) -> None:
        now_ms = self._clock.now_ms()
        for name, value in values:
            self._revocations.learn(name, value, now_ms)

    def _watch(self) -> None:
        """Hear of what other nodes add, where the store is shared with them."""
        if isinstance(self._store, SharedStore):
            self._store.watch(WatchValues(reply_to=self.address, prefix=REVOKED_PREFIX))

    def _heard(self, watch: WatchValues) -> None:
        if watch.error is None:
            self._learn(watch.changed)
            self._watch()
        elif watch.error.code != "store.closed":
            logger.warning("logouts_not_followed", extra={"code": watch.error.code})
            self.wake_after(RETRY_SECONDS, _WatchAgain())
