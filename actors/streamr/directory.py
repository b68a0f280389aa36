"""The directory: reads the store for those who are no actors, keeps logouts, hears of others'.

Who asks it with an operation that reads gets the same operation back, completed.
"""

from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.core.orders import Orders
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    FindStream,
    GetRecord,
    ListKeys,
    ListRecords,
    ListStreams,
    LogStore,
    PutRecords,
    WatchValues,
)
from rillnode.actors.log.waiting import read, write
from rillnode.actors.ports import Clock
from rillnode.actors.streamr.catalogue import Catalogue
from rillnode.actors.streamr.revocations import REVOKED_PREFIX, WHOLE_LIST
from rillnode.actors.streamr.sessions import Sessions
from rillnode.codecs.errors import StoreError

_PAGE_REVOCATIONS: Final = 500
"""So many are written or read at once: a write of them fits what every store takes."""

Question = FindStream | ListStreams | ListKeys


@dataclass(frozen=True, slots=True)
class LoadDirectory:
    """Learn what the store has of logouts and of streams; the answer is Done."""


@dataclass(frozen=True, slots=True)
class StoreRevocations:
    """Make the logouts durable that there are now; the answer is Done."""


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, or why it is not."""

    error: StoreError | None = None


class Directory(Worker):
    """The streams, permissions and sessions of Streamr's clients; one per node that serves them.

    What it knows is in its parts, which outlive an instance that fails.
    """

    interleaves = True
    essential = True

    def __init__(
        self, store: LogStore, sessions: Sessions, catalogue: Catalogue, clock: Clock
    ) -> None:
        self._store = store
        self._revocations = sessions.revocations
        self._catalogue = catalogue
        self._clock = clock
        self._orders = Orders()

    def started(self) -> None:
        """Hear of others' logouts from now on: what is loaded later misses none of them."""
        self._watch()

    async def handle(
        self,
        message: FindStream | ListStreams | ListKeys | LoadDirectory | StoreRevocations,
        sender: ActorAddress | None,
    ) -> None:
        """Answer questions as soon as the store has; none waits for another."""
        match message:
            case FindStream() | ListStreams() | ListKeys():
                with suppress(StoreError):  # it is in the operation
                    await read(self._store, message)
                self._answer(sender, message)
            case LoadDirectory():
                self._answer(sender, await self._done(self._load()))
            case StoreRevocations():
                self._answer(sender, await self._done(self._save()))
            case _:
                assert_never(message)

    def _answer(self, asker: ActorAddress | None, answer: Question | Done) -> None:
        if asker is not None:
            self.send(asker, answer)

    async def _done(self, work: Coroutine[Any, Any, None]) -> Done:
        try:
            await work
        except StoreError as error:
            return Done(error)
        return Done()

    # Loading ---------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Take over what is stored.

        Raises:
            StoreError: it cannot be read, or an old list of logouts is damaged.
        """
        whole = GetRecord(key=WHOLE_LIST)
        await read(self._store, whole)
        if whole.value is not None:
            self._revocations.learn_whole_list(whole.value, self._clock.now_ms())
        await self._load_revocations()
        await self._save()
        await self._load_streams()

    async def _load_revocations(self) -> None:
        after = ""
        while True:
            page = ListRecords(prefix=REVOKED_PREFIX, after=after, limit=_PAGE_REVOCATIONS)
            await read(self._store, page)
            self._learn(page.records)
            if len(page.records) < page.limit:
                return
            after, _ = page.records[-1]

    async def _load_streams(self) -> None:
        after = ""
        while True:
            page = ListStreams(after=after, names_only=True)
            await read(self._store, page)
            for record in page.records:
                self._catalogue.tell(record)
            if not page.more:
                return
            after = page.records[-1].name

    # Logouts ---------------------------------------------------------------------------------

    async def _save(self) -> None:
        """Write the logouts that are not stored yet, page by page, after what others had begun.

        Raises:
            StoreError: it cannot be written.
        """
        async with self._orders.of(REVOKED_PREFIX):
            while values := self._revocations.unsaved(_PAGE_REVOCATIONS):
                await write(self._store, PutRecords(records=values))
                self._revocations.saved(values)

    # Others' logouts -------------------------------------------------------------------------

    def _watch(self) -> None:
        watch = WatchValues(prefix=REVOKED_PREFIX)
        self._store.watch(self.then(watch, self._heard, self._take_over))

    def _heard(self, watch: WatchValues) -> None:
        self._take_over(watch)
        self._watch()

    def _take_over(self, watch: WatchValues) -> None:
        """Learn what was heard, whatever becomes of the instance that listens."""
        self._learn(watch.changed)

    def _learn(self, values: Iterable[tuple[str, bytes | None]]) -> None:
        now_ms = self._clock.now_ms()
        for name, value in values:
            self._revocations.learn(name, value, now_ms)
