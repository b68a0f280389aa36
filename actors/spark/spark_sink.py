"""The Spark sink actor: owns the job that lands a node's streams in a table.

The job asks this actor, never the streams: for the extents of the sink's partitions, for ranges of
them (the actor cuts and ships each batch), and to save what it has committed. The actor starts the
job, starts it again with backoff when it ends, parks one that only fails, gives it a short-lived
key, and knows its lag.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar, Final, assert_never

import msgspec

from rillnode.actors.core.access import Access, Grant
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.streams.answers import failed, invalid_request
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.core.streams.index_service import AskPosition
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    ListStreams,
    LoadIndex,
    LogExtent,
    LogStore,
    Read,
    SavedIndexKey,
    StreamRecord,
    log_id,
)
from rillnode.actors.log.waiting import read
from rillnode.actors.ports import JobLauncher, TimerHandle
from rillnode.actors.spark.sink_job import SinkJob, SinkStatus, TableStatus
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import Route

WHICHEVER: Final = 0
"""As `created_at` of a request: the stream that has the name now."""


class SinkRanges:
    """Reads ranges from the store for one sink.

    Args:
        store: where the streams are.
        reply: sends the job an answer.
    """

    def __init__(self, store: LogStore, reply: Callable[[Origin, Route, bytes], None]) -> None:
        self._store = store
        self._reply = reply

    def ask(
        self,
        origin: Origin,
        return_route: Route,
        request: native.SinkReadRequest,
        record: StreamRecord | None,
        reader: Worker,
    ) -> None:
        """Read a range.

        Args:
            origin: the job's link.
            return_route: where to answer.
            request: the range.
            record: the sink's stream of the request's name, as it was last listed: not before the
                job planned the range.
            reader: the actor that reads.
        """
        # A request may be about what another node has told of, and this one not heard of yet.
        if (
            record is None
            or request.partition >= record.partitions
            or request.created_at > record.created_at
        ):
            error = RequestError("stream.unknown", "Not a partition of this sink", retryable=True)
            self._reply(origin, return_route, failed(request.request_id, error))
            return
        if request.created_at not in (WHICHEVER, record.created_at):
            self._reply(origin, return_route, _gone(request))
            return
        operation = Read(
            token=(origin, return_route, request),
            log=log_id(record.id, request.partition),
            index=request.index,
            until=request.until,
            bytes_max=native.block_budget(origin.message_bytes_max, request.bytes_max),
        )
        reader.then(operation, self._answer, self._answer)
        if (origin.room(self._store) or self._store).read(operation):
            self._answer(operation)

    def _answer(self, operation: Read) -> None:
        """Answer the job with what a completed operation has read, once."""
        asked, operation.token = operation.token, None
        if asked is None:
            return
        origin, return_route, request = asked
        extent = operation.extent
        if operation.error is not None:
            payload = failed(request.request_id, operation.error)
        else:
            payload = native.encode_blocks(
                request.request_id, extent.first_index, extent.next_index, operation.blocks
            )
        self._reply(origin, return_route, payload)


def _gone(request: native.SinkReadRequest) -> bytes:
    """The answer where the stream that is meant was removed: all of the range is lost."""
    return native.encode_blocks(request.request_id, request.until, request.until, [])


logger = event_logger("rillnode.actors.spark.spark_sink")

MEASURE_SECONDS: Final = 5.0
"""How often the lag is measured, whether the job runs or not."""

REPORTS_BYTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """A sink's streams, and how much the node keeps for it.

    Attributes:
        streams: patterns of stream names.
        hold_bytes_max: uncommitted bytes that retention keeps for it; beyond, the oldest go and
            the table gets a row that says which.
        external: somebody else starts the job.
    """

    name: str
    streams: Sequence[str]
    hold_bytes_max: int
    external: bool = False


@dataclass(frozen=True, slots=True)
class SinkPorts:
    """The ports that the node gives a sink.

    Attributes:
        launch: starts the job's process.
        issue_key: makes a new key, puts it where the job reads it, returns its principal; raises
            as `launch`.
    """

    launch: JobLauncher
    issue_key: Callable[[str], str]
    access: Access
    holds: Holds
    index_service: Cell


@dataclass(frozen=True, slots=True)
class StopSink:
    """End the job and stay stopped."""


@dataclass(frozen=True, slots=True)
class _Start:
    """Time to start the job."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """Time to measure the lag."""


@dataclass(frozen=True, slots=True)
class _RenewKey:
    """Time to give the job a new key."""


@dataclass(frozen=True, slots=True)
class _Exited:
    """A process ended; `job` tells one that an earlier instance of this actor had started."""

    job: SinkJob
    code: int


@dataclass(slots=True)
class _Ends:
    """The ends of all partitions, and how far the sink is behind them."""

    ends: list[native.SinkEnd] = field(default_factory=list[native.SinkEnd])
    rows_behind: int = 0
    bytes_behind: int = 0


@dataclass(slots=True)
class _Commit:
    """A job's commit, and how many of its positions are not durable yet."""

    origin: Origin
    return_route: Route
    request: native.SinkCommitRequest
    missing: int
    error: RillnodeError | None = None


class SparkSinkActor(Worker):
    """A configured sink, at `sink/<name>`; it answers its job and administrators."""

    mailbox_messages_max = 4_096
    spare: ClassVar = {StopSink: 1, _Exited: 1}
    on_failure = "restart"
    batches: ClassVar = {"_requests": "range"}

    def __init__(
        self,
        context: StreamContext,
        settings: SinkSettings,
        ports: SinkPorts,
        status: SinkStatus,
    ) -> None:
        self._context = context
        self._settings = settings
        self._ports = ports
        self._status = status
        self._job = SinkJob(
            settings.name,
            launch=ports.launch,
            issue_key=ports.issue_key,
            access=ports.access,
            status=status,
            external=settings.external,
            on_exit=lambda code: self.system.post(self.address, _Exited(self._job, code)),
        )
        self._principal = self._job.principal
        self._next_start: TimerHandle | None = None
        self._own_address = f"sink/{settings.name}".encode()
        self._hold = ports.holds.add(settings.name)
        self._records: dict[str, StreamRecord] = {}
        self._ranges = SinkRanges(context.store, self._reply)
        # Logs of which it is known what was committed; the job commits nowhere else.
        self._learned: set[int] = set()
        ports.access.revoke(self._principal)
        for pattern in settings.streams:
            grant = Grant(who=self._principal, streams=pattern, may=frozenset({"pull"}))
            ports.access.add(grant)

    def started(self) -> None:
        """Take the address and start the job."""
        self._context.router.register(self._own_address, self.address)
        self._renew_key()
        self._start_after(self._job.start())
        self._measure_again()

    def stopped(self) -> None:
        """End the job with its owner."""
        self._context.router.unregister(self._own_address)
        self._job.stop()

    def described(self, address: bytes) -> Described:
        """The sink; its job may ask after it."""
        kept = "`rillnode sink pause` lets it rest"
        return Described("sink", self._settings.name, self._principal, open_to="owner", kept=kept)

    def _renew_key(self) -> None:
        delay = self._job.renew_key()
        if delay is not None:
            self.wake_after(delay, _RenewKey())

    def _start_after(self, delay: float | None) -> None:
        if delay is None:
            return
        # One at a time; one that comes while the job runs does nothing.
        if self._next_start is not None:
            self._next_start.cancel()
        self._next_start = self.wake_after(delay, _Start())

    def handle(
        self,
        message: Delivery | StopSink | _Exited | _Start | _Measure | _RenewKey,
        sender: Cell | None,
    ) -> None:
        """Take the job's requests, its end, and timers."""
        match message:
            case Delivery():
                self._requests(message)
            case _Exited(job=job, code=code):
                if job is self._job:
                    self._start_after(self._job.ended(code))
            case _Start():
                self._start_after(self._job.start())
            case _RenewKey():
                self._renew_key()
            case _Measure():
                self._measure_again()
            case StopSink():
                self._job.finish()
            case _:
                assert_never(message)

    # Requests --------------------------------------------------------------------------------

    def batch_of(self) -> tuple[str, None]:
        """The sink."""
        return f"sink/{self._settings.name}", None

    def _requests(self, delivery: Delivery) -> None:
        origin = delivery.origin
        access = self._ports.access
        if origin.principal != self._principal and not access.administers(origin.principal):
            self._context.router.undeliverable("refused", delivery)
            return
        for wire in delivery.messages:
            try:
                request = decode_request(wire.payload, speaks_native=origin.native)
            except CodecError as error:
                self._reply(origin, wire.return_route, invalid_request(error))
                continue
            match request:
                case native.SinkEndsRequest(request_id=request_id):
                    refuse = partial(self._refuse, origin, wire.return_route, request_id)
                    self.begin(self._ends(origin, wire.return_route, request), refuse)
                case native.SinkReadRequest():
                    record = self._records.get(request.stream)
                    self._ranges.ask(origin, wire.return_route, request, record, self)
                case native.SinkCommitRequest():
                    self._commit(origin, wire.return_route, request)
                case native.SinkReportRequest():
                    self._report(origin, wire.return_route, request)
                case native.SinkControlRequest() if access.administers(origin.principal):
                    self._control(origin, wire.return_route, request)
                case _:
                    self._reply(origin, wire.return_route, invalid_request(request))

    async def _ends(
        self, origin: Origin, return_route: Route, request: native.SinkEndsRequest
    ) -> None:
        found = await self._look()
        response = native.SinkEndsResponse(request.request_id, found.ends)
        self._reply(origin, return_route, native.encode(response))

    def _measure_again(self) -> None:
        # Where the store cannot tell now, the next time is soon.
        self.begin(self._look())
        self.wake_after(MEASURE_SECONDS, _Measure())

    async def _look(self) -> _Ends:
        """Look at all of the sink's partitions, and note how far it is behind.

        Raises:
            StoreError: they could not be listed.
        """
        found, after, more = _Ends(), "", True
        prefix = literal_prefix(self._settings.streams)
        while more:
            page = ListStreams(after=after, prefix=prefix)
            await read(self._context.store, page)
            for record, extents in zip(page.records, page.extents, strict=True):
                if any(fnmatchcase(record.name, pattern) for pattern in self._settings.streams):
                    self._take(record, extents, found)
            more = page.more
            after = page.records[-1].name if more else ""
        self._measure(found)
        return found

    def _take(self, record: StreamRecord, extents: Sequence[LogExtent], found: _Ends) -> None:
        self._records[record.name] = record
        for partition, extent in enumerate(extents):
            log = log_id(record.id, partition)
            # All that is there is held, until it is known what was committed before.
            committed = self._hold.committed.setdefault(log, extent.first_index)
            if log not in self._learned:
                self.begin(self._learn(log, record.name, partition))
            behind = max(0, extent.next_index - max(committed, extent.first_index))
            kept = max(1, extent.next_index - extent.first_index)
            found.rows_behind += behind
            found.bytes_behind += extent.data_bytes * behind // kept
            bounds = extent.first_index, extent.next_index
            found.ends.append(native.SinkEnd(record.name, record.created_at, partition, *bounds))

    def _measure(self, found: _Ends) -> None:
        """Note the lag; a sink too far behind loses its hold until it has caught up."""
        self._hold.known = True
        self._status.rows_behind = found.rows_behind
        self._status.bytes_behind = found.bytes_behind
        released = found.bytes_behind > self._settings.hold_bytes_max
        if released and not self._hold.released:
            logger.warning(
                "sink_hold_released",
                extra={"sink": self._settings.name, "bytes_behind": found.bytes_behind},
            )
        self._hold.released = released

    def _commit(
        self, origin: Origin, return_route: Route, request: native.SinkCommitRequest
    ) -> None:
        if not request.positions:
            done = native.DoneResponse(request.request_id)
            self._reply(origin, return_route, native.encode(done))
            return
        commit = _Commit(origin, return_route, request, len(request.positions))
        for position in request.positions:
            saving = self._save(commit, position)
            self.begin(saving, partial(self._saved, commit))

    async def _save(self, commit: _Commit, position: native.SinkPosition) -> None:
        try:
            await self._position(position)
        except RillnodeError as error:
            if error.code != "stream.removed":
                raise  # a stream that is no more keeps nothing back
        self._saved(commit)

    async def _learn(self, log: int, stream: str, partition: int) -> None:
        load = LoadIndex(key=SavedIndexKey(stream, partition, self._principal))
        await read(self._context.store, load)
        self._note(log, load.index)
        if load.lasts:
            self._learned.add(log)

    async def _position(self, position: native.SinkPosition) -> None:
        """Have a position saved, and note what is durably committed.

        Raises:
            RillnodeError: that could not be done.
        """
        key = SavedIndexKey(position.stream, position.partition, self._principal)
        asking = AskPosition(key, position.index, created_at=position.created_at)
        saved = await self.ask(self._ports.index_service, asking)
        if saved.error is not None:
            raise saved.error
        record = self._records.get(position.stream)
        if record is not None and position.created_at in (WHICHEVER, record.created_at):
            self._note(log_id(record.id, position.partition), saved.index)

    def _note(self, log: int, index: int | None) -> None:
        if index is not None:
            self._hold.committed[log] = max(index, self._hold.committed.get(log, 0))

    def _saved(self, commit: _Commit, error: RillnodeError | None = None) -> None:
        """Count one position; the job is answered when all of its commit are durable."""
        commit.missing -= 1
        commit.error = commit.error or error
        if commit.missing:
            return
        if commit.error is not None:
            self._refuse(
                commit.origin, commit.return_route, commit.request.request_id, commit.error
            )
        else:
            self._status.committed_at = self._context.clock.now_ms()
            done = native.DoneResponse(commit.request.request_id)
            self._reply(commit.origin, commit.return_route, native.encode(done))

    def _refuse(
        self, origin: Origin, return_route: Route, request_id: int, error: RillnodeError
    ) -> None:
        self._reply(origin, return_route, failed(request_id, error))

    def _report(
        self, origin: Origin, return_route: Route, request: native.SinkReportRequest
    ) -> None:
        try:
            if len(request.document) > REPORTS_BYTES_MAX:
                raise msgspec.DecodeError("too large")
            report = msgspec.json.decode(request.document, type=dict[str, Any])
        except msgspec.DecodeError:
            error = RequestError("sink.report", "A report is a small JSON object")
            self._reply(origin, return_route, failed(request.request_id, error))
            return
        self._job.healthy()
        failed_before = self._status.failing_tables()
        self._status.report = report
        self._log_tables(failed_before, self._status.failing_tables())
        done = native.DoneResponse(request.request_id)
        self._reply(origin, return_route, native.encode(done))

    def _log_tables(
        self, before: Mapping[str, TableStatus], now: Mapping[str, TableStatus]
    ) -> None:
        for name, table in now.items():
            if before.get(name) != table:
                about = {"sink": self._settings.name, "table": name, **table._asdict()}
                logger.warning("sink_table_failed", extra=about)
        for name in before.keys() - now.keys():
            about = {"sink": self._settings.name, "table": name}
            logger.info("sink_table_goes_on", extra=about)

    def _control(
        self, origin: Origin, return_route: Route, request: native.SinkControlRequest
    ) -> None:
        if self._settings.external:
            error = RequestError("sink.external", "Somebody else starts this job: stop it there")
            self._reply(origin, return_route, failed(request.request_id, error))
            return
        if request.run:
            self._start_after(self._job.resume())
        else:
            self._job.pause()
        done = native.DoneResponse(request.request_id)
        self._reply(origin, return_route, native.encode(done))

    def _reply(self, origin: Origin, return_route: Route, payload: bytes) -> None:
        self._context.router.reply(origin, self._own_address, [(return_route, payload)])


def literal_prefix(patterns: Sequence[str]) -> str:
    """The longest text with which every name that matches any of the patterns begins."""
    literals = [re.split(r"[*?\[]", pattern, maxsplit=1)[0] for pattern in patterns]
    # The characters in which the smallest and the largest agree, all those between share.
    low, high = min(literals, default=""), max(literals, default="")
    return "".join(
        a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False))
    )
