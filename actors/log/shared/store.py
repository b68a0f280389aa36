"""SharedLogStore: the durable log of many nodes, on an engine that orders and keeps frames.

    submit -> queue of the shard -> frame -> engine, which says at which sequence it is kept
    every node: the frames of a shard in order -> its view of the shard -> completions, news, reads

A view is a store of one node; it is made when the first needs it and closed when nobody does. Which
node serves which client decides nothing. What must not be older than what anybody was confirmed
(positions, named values, that there is no such stream) is read behind an empty frame.
"""

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from rillnode.actors.log import (
    AnyWatch,
    Append,
    Complete,
    FindStream,
    GetRecord,
    GetRecords,
    HasRecords,
    ListIndexes,
    ListRecords,
    ListStreams,
    LoadIndex,
    Lookup,
    OnHealth,
    OpenProducer,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    Read,
    ReadOperation,
    RemoveStream,
    SaveIndex,
    StoreHealth,
    StreamRecord,
    Trim,
    Watch,
    WriteOperation,
    version_of,
)
from rillnode.actors.log.completion import closed_error, deliver, tell
from rillnode.actors.log.nodes import NODES
from rillnode.actors.log.rocks.format import check_copied
from rillnode.actors.log.shared.applying import ApplyFrame, encode_identity
from rillnode.actors.log.shared.catalogue import Catalogue
from rillnode.actors.log.shared.frames import BeginLog, PutListing, SharedOperation
from rillnode.actors.log.shared.held import Held
from rillnode.actors.log.shared.owner import SharedOptions, View
from rillnode.actors.log.shared.placement import CATALOGUE, Placement, PlaceOf
from rillnode.actors.log.shared.port import Blobs, LogLost, SharedLog, unreachable
from rillnode.actors.log.shared.saving import Saving
from rillnode.actors.log.shared.shard import Shard
from rillnode.actors.log.shared.shards import Shards
from rillnode.actors.log.shared.snapshots import Snapshots
from rillnode.actors.log.shared.versions import Versions
from rillnode.actors.log.shared.watching import Watching
from rillnode.codecs.entries import decode_header
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

COPYING: Final = "shared/copying"
"""Named value: the store is being copied into; what stands beside it has names that begin so."""

CLOSE_SECONDS: Final = 5.0
"""What is under way has this long to end when the store is closed."""

_LOSS_FILE: Final = "loss"
"""In a view's directory: what the log has lost of it, which stands until it is deleted with it."""

CONNECTION_SECONDS: Final = 1.0
"""How often it is looked whether the engine is there."""

_DEFAULT_OPTIONS: Final = SharedOptions()


class MakeView(Protocol):
    """Makes the view of a shard in a directory, not open yet."""

    def __call__(
        self,
        path: Path,
        identity: bytes,
        shard: int,
        shards: int,
        *,
        complete: Complete,
        on_health: OnHealth,
    ) -> View:
        """The view; `identity` is what its directory must be of."""
        ...


class SharedLogStore:
    """A LogStore whose logs are those of all nodes on the same engine.

    Args:
        log: the engine.
        blobs: where snapshots are kept.
        directory: of the views; what is in it can be had again.
        make_view: makes a view.
        entropy: gives random bytes.
        now_ms: the time, in ms since 1970.
        complete: takes what is complete; called from any thread.
        on_health: is told of changes; called on the loop.
        options: sizes and times.
        places: what protocols say of where their names lie.
        copying: whether it may be one that is copied into, as for who copies.
        loop: on which everything is done but the work of the views.
    """

    def __init__(
        self,
        log: SharedLog,
        blobs: Blobs,
        directory: Path,
        make_view: MakeView,
        *,
        entropy: Callable[[int], bytes],
        now_ms: Callable[[], int],
        complete: Complete,
        on_health: OnHealth,
        loop: asyncio.AbstractEventLoop,
        options: SharedOptions = _DEFAULT_OPTIONS,
        places: Sequence[PlaceOf] = (),
        copying: bool = False,
    ) -> None:
        self.log = log
        self._copying = copying
        self.options = options
        self.entropy = entropy
        self._now_ms = now_ms
        self._blobs = blobs
        self._directory = directory
        self._make_view = make_view
        self._complete = complete
        self._on_health = on_health
        self._loop = loop
        self._places = places
        self._identity = b""
        self.shards = Shards(partial(Shard, owner=self), options, loop)
        self.versions = Versions()
        self._watching = Watching(self._done)
        self._held = Held(self.shards)
        self._catalogue = Catalogue(self.shards, self._held, self._watching)
        self._saving: Saving | None = None
        self._refusal: StoreError | None = closed_error()
        self._health = StoreHealth(writable=False, reason="the store is not open")
        # What comes before the engine has said how many shards there are.
        self._early: list[WriteOperation | BeginLog] = []
        self._opening: asyncio.Future[None] | None = None
        # The engine has been away for too long.
        self._away: StoreError | None = None

    # The port --------------------------------------------------------------------------------

    @property
    def health(self) -> StoreHealth:
        """Whether writes are taken."""
        return self._health

    @property
    def pending_bytes(self) -> int:
        """Bytes submitted and not yet completed."""
        return sum(shard.writes.pending_bytes for shard in self.shards)

    @property
    def under_way(self) -> int:
        """Frames that are not carried out yet."""
        return sum(shard.writes.under_way for shard in self.shards)

    def open(self) -> None:
        """Connect, and open the view of shard 0; on the loop's own thread it does not wait.

        Raises:
            StoreError: no server answers, or what there is cannot be used.
        """
        self._refusal = None
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self.shards.begin(self._open_here())
        else:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    def close(self) -> None:
        """End what is under way, or refuse it after a while; harmless when repeated."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self._refusal = closed_error()
            self._loop.create_task(self._close())
        else:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    async def _open_here(self) -> None:
        """Open it, once it can be: nobody waits who could be told that it cannot."""
        while True:
            try:
                await self._open()
                return
            except StoreError as error:
                self._refuse_all(error)
                if not error.retryable:
                    return
            await asyncio.sleep(self.options.retry_seconds)
            self._refusal = None

    async def _open(self) -> None:
        self._opening = self._loop.create_future()
        options = self.options
        deadline = self._loop.time() + options.patience_seconds
        try:
            while True:
                try:
                    opened = await self.log.open(options.shards, self._heard)
                    break
                except LogLost as error:
                    if self._loop.time() > deadline:
                        raise unreachable(str(error)) from None
                await asyncio.sleep(options.retry_seconds)
            self._identity = opened.identity
            self.shards.placement = Placement(opened.shards, self._places)
            snapshots = Snapshots(self._blobs, opened.identity, self._directory, self.entropy)
            self._saving = Saving(
                self.shards, self.log, snapshots, self._path, self.entropy, self._now_ms
            )
            early, self._early = self._early, []
            for operation in early:
                self.submit(operation)
            await self.shards[CATALOGUE].ready()
            if not self._copying:
                mark = GetRecord(key=COPYING)
                await self.shards.ask(CATALOGUE, mark)
                check_copied(mark.value is not None)
        except StoreError as error:
            self._opening.set_exception(error)
            self._opening.exception()  # whoever waits is told; nobody has to
            await self._let_go()
            raise
        self._opening.set_result(None)
        self.shards.begin(self._look_after_views())
        self.shards.begin(self._watch_connection())
        self.shards.begin(self._held.open())
        self.health_changed()
        for watch in self._watching.logs.values():
            self.shards.begin(self._look_at(watch))

    async def _close(self) -> None:
        self._refuse_all(closed_error())
        await self.shards.close(CLOSE_SECONDS)
        await self.shards.end()
        # What has come while one of them tried to open it once more.
        self._refuse_all(closed_error())
        await self._let_go()

    async def _let_go(self) -> None:
        # First, so that no shard is made meanwhile: nobody would close it.
        self.shards.placement = self._away = None
        await self.shards.close()
        self.shards.clear()
        await self.log.close()

    def _refuse_all(self, error: StoreError) -> None:
        self._refusal = error
        early, self._early = self._early, []
        self.refused(early, error)
        self._health = StoreHealth(writable=False, reason=error.text)
        if error.code != "store.closed":
            tell(self._on_health, self._health)

    # Shards ----------------------------------------------------------------------------------

    async def current_view(self, number: int) -> View:
        """A shard's view, with all that was confirmed anywhere before this was called.

        Raises:
            StoreError: the engine does not answer, or the view cannot be opened.
        """
        shard = self.shards[number]
        await shard.fresh()
        if shard.view is None:
            raise shard.refusal or closed_error()
        return shard.view

    def _heard(self, number: int, sequence: int) -> None:
        shard = self.shards.get(number)
        if shard is not None:
            shard.follows.heard(sequence)

    async def _look_after_views(self) -> None:
        """Close views that nobody uses, and see that others could be made as those that are."""
        seconds = self.options.idle_seconds
        while True:
            await asyncio.sleep(seconds / 4)
            place = self.shards.place
            watched = {place.of_log(log) for log in self._watching.logs} | self._held.always
            before = self._loop.time() - seconds
            for shard in self.shards:
                idle = shard.is_ready and shard.writes.is_idle and shard.last_used < before
                if idle and shard.number not in watched:
                    logger.info("view_closed", extra={"shard": shard.number})
                    await shard.rest()
                elif shard.is_ready:
                    await self._known_saving.look_after(shard)

    async def _watch_connection(self) -> None:
        """Tell when the engine has been away for as long as a write waits for it, and is back."""
        since = self._loop.time()
        while True:
            await asyncio.sleep(CONNECTION_SECONDS)
            described = self.log.describe()
            if described.get("connected"):
                since = self._loop.time()
            is_away = self._loop.time() - since > self.options.patience_seconds
            if is_away is not (self._away is not None):
                self._away = (
                    unreachable(described.get("reason") or "no connection") if is_away else None
                )
                self.health_changed()

    @property
    def _known_saving(self) -> Saving:
        """What makes and takes snapshots; the engine has said what they are of."""
        assert self._saving is not None
        return self._saving

    async def restore(self, number: int, after: int) -> bool:
        """Put the newest snapshot of a shard in the place of its view; see `Saving`."""
        return await self._known_saving.restore(number, after)

    def make_view(self, number: int, complete: Complete, on_health: OnHealth) -> View:
        """The view of a shard, not open yet."""
        shards = self.shards.place.shards
        identity = encode_identity(self._identity, number, shards)
        return self._make_view(
            self._path(number), identity, number, shards, complete=complete, on_health=on_health
        )

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:04x}"

    def discard(self, number: int, code: str) -> None:
        """Put a view aside, under a name that says why, for who wants to know more of that."""
        path = self._path(number)
        aside = path.with_suffix(f".{code.removeprefix('store.')}")
        shutil.rmtree(aside, ignore_errors=True)
        if path.exists():
            path.rename(aside)

    def note_loss(self, number: int, error: StoreError) -> None:
        """Let a view be refused from now on, until an operator has deleted it."""
        path = self._path(number)
        if path.is_dir():  # a view in memory has none
            with suppress(OSError):  # it is found again, as long as the log can show it
                (path / _LOSS_FILE).write_text(error.text, "utf-8")

    def check_loss(self, number: int) -> None:
        """See that nothing was noted of a view. Raises StoreError: `store.lost`."""
        file = self._path(number) / _LOSS_FILE
        if file.exists():
            raise StoreError("store.lost", file.read_text("utf-8"), retryable=False)

    def health_changed(self) -> None:
        """Tell whether writes are taken by all shards that are in use."""
        found = (self._away, *(one.refusal for one in self.shards))
        refusals = [one for one in found if one is not None]
        reason = refusals[0].text if refusals else ""
        health = StoreHealth(writable=not refusals, reason=reason)
        if health != self._health and self._refusal is None and self.shards.placement is not None:
            self._health = health
            tell(self._on_health, health)

    def rest(self) -> None:
        """Nothing: views are small, and those that nobody uses are closed one by one."""

    def describe(self) -> Mapping[str, Any]:
        """The state of the log and of the views, for people."""
        shards = [
            {
                "shard": shard.number,
                "sequence": shard.follows.applied,
                "behind": max(0, shard.follows.known - shard.follows.applied),
                "always": shard.number in self._held.always,
                "damaged": shard.follows.damaged,
                "error": None if shard.refusal is None else shard.refusal.code,
                **({} if self._saving is None else self._saving.described(shard.number)),
            }
            for shard in self.shards
        ]
        placement = self.shards.placement
        return {
            **self.log.describe(),
            "shards": 0 if placement is None else placement.shards,
            "serve": list(self.options.serve),
            "views": shards,
        }

    # Writes ----------------------------------------------------------------------------------

    def submit(self, operation: WriteOperation | BeginLog) -> None:
        """Queue a write; it is completed with an error at once where it cannot be taken."""
        if self._refusal is not None:
            self.refused((operation,), self._refusal)
        elif self.shards.placement is None:
            self._early.append(operation)
        elif self.pending_bytes > self.options.pending_bytes_max:
            text = "too much waits for the log's servers: try again"
            self.refused((operation,), StoreError("store.busy", text))
        else:
            try:
                number = self._shard_of(operation)
            except StoreError as error:
                self.refused((operation,), error)
                return
            if not self._held.serves(operation, number):
                self.shards.begin(self._ending(operation, self._held.refuse(operation, number)))
                return
            sweep = operation if isinstance(operation, Trim) and operation.at_hand else None
            if sweep is not None and not self.shards.is_ready(number):
                self._done((operation,))
                return
            shard = self.shards[number]
            # A sweep looks before it writes; any other trim keeps its place among the appends.
            if sweep is not None and not sweep.before and shard.writes.is_idle:
                self.shards.begin(self._ending(sweep, self._trim(sweep, shard)))
            else:
                shard.submit(operation)

    def _shard_of(self, operation: WriteOperation | BeginLog) -> int:
        """The shard that a write belongs into. Raises StoreError: `store.scattered`."""
        place = self.shards.place
        match operation:
            case Append(log=log, records=records, follows=follows):
                return self._with(place.of_log(log), (*records, *follows))
            case Trim(log=log) | BeginLog(log=log) | OpenProducer(log=log):
                return place.of_log(log)
            case PutStream(record=StreamRecord(name=name)) | RemoveStream(name=name):
                return place.of_stream(name)
            case SaveIndex(key=key, seen=seen):
                return self._with(place.of_stream(key.stream), seen)
            case PutRecord(key=name):
                return place.of_value(name)
            case PutRecords(records=records, seen=seen):
                return place.of_values([name for name, _ in (*records, *seen)])

    def _with(self, number: int, beside: Sequence[tuple[str, object]]) -> int:
        """A shard, if these values lie there, too. Raises StoreError: `store.scattered`."""
        names = [name for name, _ in beside]
        if names and self.shards.place.of_values(names) != number:
            raise StoreError(
                "store.scattered",
                f"values that are changed or seen with shard {number} lie in another: {names[:3]}",
                retryable=False,
            )
        return number

    async def _trim(self, operation: Trim, shard: Shard) -> None:
        """Write a sweep's trim only where there may be something to drop."""
        look = Read(log=operation.log, index=0, entries_max=1, bytes_max=1)
        used = shard.last_used
        await self.shards.ask(shard.number, look)
        if shard.writes.is_idle:
            shard.last_used = used  # a view is not in use because somebody looks after it
        if _may_cut(operation, look):
            shard.submit(operation)
        else:
            operation.extent = look.extent
            self._done((operation,))

    def completed(self, shard: int, operations: Sequence[SharedOperation], sequence: int) -> None:
        """Operations of this node were carried out."""
        self._done(self._catalogue.completed(shard, operations, sequence))

    def refused(self, operations: Sequence[Operation], error: StoreError) -> None:
        """Operations end with an error."""
        done: list[Operation] = []
        for operation in operations:
            if isinstance(operation, PutListing):
                # What it tells of is done.
                told = self._catalogue.refused(operation, is_open=self._refusal is None)
                if told is not None:
                    done.append(told)
            else:
                operation.error = error
                done.append(operation)
        self._done(done)

    def _done(self, operations: Sequence[Operation]) -> None:
        """Hand over what is complete; what the store waits for itself goes on here."""
        others = self.shards.take(operations)
        if others:
            deliver(self._complete, others)

    # News ------------------------------------------------------------------------------------

    def landed(self, shard: int, frame: ApplyFrame, *, is_own: bool) -> None:
        """A frame was carried out on a view."""
        # What was there when the view was first opened is no news.
        is_news = not is_own and frame.sequence > self.shards[shard].history
        self._held.landed(frame)
        if shard == CATALOGUE:
            self.versions.learn(_values_of(frame))
        self._watching.landed(frame, is_own=not is_news)
        self._known_saving.landed(shard, frame, is_own=is_own)
        if not is_own:
            self._catalogue.landed(shard, frame, is_news=is_news)

    def opened(self, number: int) -> None:
        """A view was opened: what is watched may be in it, and what is must be in the catalogue."""
        for watch in self._watching.logs.values():
            if self.shards.place.of_log(watch.log) == number:
                self.shards.begin(self._look_at(watch))
        self.shards.begin(self._known_saving.opened(number))
        if number == CATALOGUE:
            self.shards.begin(self._learn_nodes())
        if number != CATALOGUE:
            self.shards.begin(self._catalogue.compare(number))

    async def _learn_nodes(self) -> None:
        """Learn which versions the nodes read that have told of themselves before."""
        page = ListRecords(prefix=NODES)
        with suppress(StoreError):  # it is opened again
            while True:
                await self.shards.ask(CATALOGUE, page)
                self.versions.learn(page.records)
                if len(page.records) < page.limit:
                    return
                page = ListRecords(prefix=NODES, after=page.records[-1][0])

    # Reads -----------------------------------------------------------------------------------

    def read(self, operation: ReadOperation) -> bool:
        """Answer at once (True), or later through `complete` (False)."""
        if isinstance(operation, Lookup):
            operation.lasts = False
        if self.shards.placement is not None and self._refusal is None:
            number = self._direct(operation)
            shard = self.shards.get(number)
            if (
                shard is not None
                and shard.is_ready
                and shard.view is not None
                and self._held.serves(operation, shard.number)
            ):
                shard.last_used = self._loop.time()
                return shard.view.read(operation)
        elif self._refusal is not None:
            operation.error = self._refusal
            self._done((operation,))
            return False
        self.shards.begin(self._ending(operation, self._read_later(operation)))
        return False

    def _direct(self, operation: ReadOperation) -> int | None:
        """The shard whose view answers as it is; None: it takes more than that."""
        if isinstance(operation, LoadIndex | GetRecord | GetRecords | HasRecords | ListRecords):
            return None  # these are read as new as can be
        return self.shards.place.of_read(operation)

    async def _read_later(self, operation: ReadOperation) -> None:
        if self.shards.placement is None:
            assert self._opening is not None
            await asyncio.shield(self._opening)
        if isinstance(operation, ListStreams):
            await self._catalogue.list_streams(operation)
        elif isinstance(operation, ListIndexes) and not operation.stream:
            await self._catalogue.list_indexes(operation)
        else:
            number = self._direct(operation)
            is_fresh = number is None
            if number is None:
                number = self.shards.place.of_read(operation)
                assert number is not None, "what is of all shards is listed above"
            if not self._held.serves(operation, number):
                await self._held.refuse(operation, number)
            if is_fresh:
                await self.shards[number].fresh()
            await self.shards.ask(number, operation)
        self._done((operation,))

    async def _ending(self, operation: Operation, work: Coroutine[Any, Any, None]) -> None:
        """Do what completes an operation; where it fails, or is cut off, the operation ends so."""
        try:
            await work
        except StoreError as error:
            self.refused((operation,), error)
        except asyncio.CancelledError:
            self.refused((operation,), closed_error())
            raise
        except Exception as error:
            logger.exception("operation_failed")
            text = f"the node failed at an operation of its store ({error!r})"
            self.refused((operation,), StoreError("store.failed", text))

    def answered(self, shard: int, operations: Sequence[Operation]) -> None:
        """Reads of a view are complete; called by its threads."""
        done: list[Operation] = []
        for operation in operations:
            if isinstance(operation, GetRecord):
                operation.version = version_of(operation.value)
            elif isinstance(operation, ListRecords):
                operation.versions = [version_of(value) for _, value in operation.records]
            if self.shards.is_own(operation):
                self._loop.call_soon_threadsafe(self.shards.take, (operation,))
            elif (
                isinstance(operation, FindStream)
                and operation.record is None
                and operation.error is None
            ):
                self._loop.call_soon_threadsafe(self._look_again, shard, operation)
            else:
                done.append(operation)
        self._done(done)

    def _look_again(self, number: int, operation: FindStream) -> None:
        """Another node may have made the stream a moment ago."""
        self.shards.begin(self._ending(operation, self._find_fresh(number, operation)))

    async def _find_fresh(self, number: int, operation: FindStream) -> None:
        await self.shards[number].fresh()
        await self.shards.ask(number, operation)
        self._done((operation,))

    # News ------------------------------------------------------------------------------------

    def watch(self, operation: AnyWatch) -> None:
        """Complete the operation as soon as there is what it waits for."""
        self._watching.add(operation)
        if isinstance(operation, Watch) and self.shards.placement is not None:
            self.shards.begin(self._look_at(operation))

    async def _look_at(self, watch: Watch) -> None:
        """What is watched may be there already; in a view that is not open `opened` looks again."""
        number = self.shards.place.of_log(watch.log)
        if not self._held.serves(watch, number):
            return  # nothing is heard of it here
        shard = self.shards[number]
        if not shard.is_ready:
            shard.ensure()
            return
        while shard.is_ready and self._watching.logs.get(watch.log) is watch:
            look = Read(log=watch.log, index=watch.index, entries_max=1, bytes_max=1)
            try:
                await self.shards.ask(number, look)
            except StoreError:
                await asyncio.sleep(self.options.retry_seconds)
            else:
                self._watching.grown(watch.log, look.extent.next_index)
                return


def _values_of(frame: ApplyFrame) -> Iterator[tuple[str, bytes | None]]:
    """The named values that a frame has changed."""
    for operation in frame.operations:
        if operation.error is None:
            if isinstance(operation, PutRecord):
                yield operation.key, operation.value
            elif isinstance(operation, PutRecords):
                yield from operation.records


def _may_cut(trim: Trim, look: Read) -> bool:
    """Whether a trim may do anything to a log whose extent and first block were read."""
    extent, limits = look.extent, trim.retention
    if not extent.next_index:
        return True  # it may have been removed, which is to be told
    if trim.hold is not None and trim.hold <= extent.first_index:
        return False
    entries = extent.next_index - extent.first_index
    if limits.entries_max is not None and entries > limits.entries_max:
        return True
    if limits.bytes_max is not None and extent.data_bytes > limits.bytes_max:
        return True
    if limits.seconds is None or not look.blocks:
        return False
    received_at = decode_header(look.blocks[0].value).received_at
    return received_at < trim.now_ms - int(limits.seconds * 1000)
