"""Appends to a stream's log: checks, charges, and answers when it is durable.

It makes operations and settles them when complete; the stream's actor gives them to the store. To
settle one needs no instance of that actor: who has asked is told the truth when it is gone, too.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.answers import failed
from rillnode.actors.core.streams.asked import Answers, NativeAppend, Opening, Pushes
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.waiting import Then
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    EVERY_ENTRY,
    Append,
    GetRecord,
    LogStore,
    OpenProducer,
    Read,
    StreamRecord,
)
from rillnode.actors.log.producers import in_row, row_name
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.entries import (
    FLAGS_PUSHED,
    EntryKind,
    check_body,
    data_bytes,
    flags_of,
    pack_body,
    split_items,
)
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import PRODUCER_BYTES_MAX, SEQUENCE_MAX
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.routing.stream import PushRequest

logger = event_logger("rillnode.actors.core.streams.stream")


class Insertion(Struct, frozen=True):
    """Entries that an actor appends for a protocol whose clients do not speak in wire messages.

    They become one block, all or none. Who asks has made sure that `principal` may push them.

    Attributes:
        principal: to whom they are charged.
        items: at most what makes one block, see `codecs.entries.split_items`.
        metas: what is kept beside each item; empty: nothing.
        entry_keys: each item's own key, or None; empty: none has any.
        headers: each item's headers, encoded; empty: none has any.
        keys: secondary keys, as an Append has them; those of arrival come to entries of kind BYTES
            by themselves.
        records: named values, as an Append has them.
        seen, follows: as an Append has them.
    """

    principal: str
    kind: EntryKind
    items: Sequence[bytes]
    metas: Sequence[bytes] = ()
    entry_keys: Sequence[bytes | None] = ()
    headers: Sequence[bytes] = ()
    keys: Sequence[tuple[bytes, int]] = ()
    records: Sequence[tuple[str, bytes | None]] = ()
    seen: int | None = None
    follows: Sequence[tuple[str, int]] = ()


Told = Callable[[int, RillnodeError | None], object]
"""Told the index of the first entry that was appended, or why nothing of it is durable."""


class Inserted(Struct, frozen=True):
    """The token of an Insertion; `address` is the partition's, and `owner` the stream's."""

    entries: Insertion
    address: bytes
    owner: str


class Gathered:
    """The outcomes of the items of one AppendManyRequest.

    Args:
        context: the node's parts.
        own_address: where it came to.
        origin: who has asked.
        return_route: where the answer goes.
        request: the request.
    """

    __slots__ = (
        "_answered", "_context", "_failures", "_from", "_id", "_indexes", "_looks", "_origin",
        "_settled", "_to", "pusher",
    )  # fmt: skip

    def __init__(
        self,
        context: StreamContext,
        own_address: bytes,
        origin: Origin,
        return_route: Route,
        request: native.AppendManyRequest,
    ) -> None:
        self._context = context
        self._from = own_address
        self._origin = origin
        self._to = return_route
        self._id = request.request_id
        self._indexes = [0] * len(request.items)
        self._failures: list[native.Failure] = []
        self._answered = self._settled = self._looks = False
        self.pusher = origin.principal

    def note(self, item: int, first_index: int, error: RillnodeError | None) -> None:
        """An item is stored, or nothing of it is."""
        if error is None:
            self._indexes[item] = first_index
        else:
            self._failures.append(native.Failure.of(item, error))

    def answer(self) -> None:
        """Tell who has asked, once; every item is noted but those that are looked for."""
        self._settled = True
        self._tell()

    def looks(self, *, on: bool) -> None:
        """Items are looked for that may be stored already; or that is over, and they are noted."""
        self._looks = on
        self._tell()

    def _tell(self) -> None:
        if self._answered or self._looks or not self._settled:
            return
        self._answered = True
        response = native.PositionsResponse(self._id, self._indexes, self._failures)
        answer = (self._to, native.encode(response))
        self._context.router.reply(self._origin, self._from, [answer])


class Part(Struct, frozen=True):
    """The token of one item of an AppendManyRequest; `owner` is the stream's.

    Attributes:
        is_charged: it was taken from quotas.
    """

    gathered: Gathered
    item: int
    appends: "Appends"
    owner: str
    is_charged: bool = True

    @property
    def pusher(self) -> str:
        """Who has pushed it."""
        return self.gathered.pusher


class Refused(Struct, frozen=True):
    """An append that quotas do not let in, unless it was stored before (`was_stored`)."""

    append: Append
    refusal: RequestError


Token = Pushes | NativeAppend | Inserted | Part


class Appends:
    """The appends of one partition of one stream."""

    __slots__ = ("_context", "_owner", "_signed_only", "_under_way", "address", "log")

    def __init__(self, context: StreamContext, address: bytes, log: int, owner: str) -> None:
        self._context = context
        self.address = address
        self.log = log
        self._owner = owner
        self._signed_only = False
        # By producer and epoch, the number after the last one that is on its way to the disk; None
        # where there is nothing, which is so of most.
        self._under_way: dict[tuple[bytes, int], int] | None = None

    def update(self, record: StreamRecord) -> None:
        """Take over what the stream's record says now."""
        self._signed_only = record.require_signed

    def pushes(
        self, origin: Origin, pushes: Sequence[tuple[Route, PushRequest]]
    ) -> Iterator[Append]:
        """What appends that which was pushed, in blocks within the limits; refusals are told."""
        start = 0
        for items in split_items([request.data for _, request in pushes]):
            waiting = pushes[start : start + len(items)]
            token = Pushes(origin, waiting, self._owner)
            append = self._admitted(len(items), pack_body(items), token, origin.principal)
            if append is not None:
                yield append
            start += len(items)

    def block(
        self, origin: Origin, return_route: Route, request: native.AppendRequest, answers: Answers
    ) -> Append | Refused | None:
        """What appends a native client's block; None where that is refused, and told why."""
        try:
            _check_pushed(request)
            if request.producer:
                _check_numbers(request.producer, request.epoch, request.sequence, request.count)
        except (CodecError, RequestError) as error:
            answers.append((return_route, failed(request.request_id, error)))
            return None
        token = NativeAppend(origin, return_route, request.request_id, self._owner)
        if not request.producer:
            return self._admitted(
                request.count, request.body, token, origin.principal, flags=request.flags
            )
        return self._numbered(token, request, request.producer, request.epoch, request.after)

    def part(
        self,
        gathered: Gathered,
        number: int,
        item: native.AppendItem,
        producer: bytes,
        principal: str,
    ) -> Append | Refused | None:
        """What appends an item of many; None where that is refused, and noted."""
        try:
            _check_pushed(item)
            if producer:
                _check_numbers(producer, 0, item.sequence, item.count)
        except (CodecError, RequestError) as error:
            gathered.note(number, -1, error)
            return None
        token = Part(gathered, number, self, self._owner)
        if not producer:
            return self._admitted(item.count, item.body, token, principal, flags=item.flags)
        return self._numbered(token, item, producer)

    def _numbered(
        self,
        token: NativeAppend | Part,
        item: native.AppendRequest | native.AppendItem,
        producer: bytes,
        epoch: int = 0,
        after: int = 0,
    ) -> Append | Refused | None:
        """What appends numbered entries, which may be stored already: those cost nothing."""
        owner, count, number = (producer, epoch), item.count, item.sequence
        refusal = self._refusal(count, item.body, token, token.pusher, item.flags)
        if refusal is not None and refusal.code == "stream.signed_only":
            self._answer(token, -1, refusal)
            return None
        if refusal is not None:
            token = replace(token, is_charged=False)
        append = self._append(count, item.body, token, flags=item.flags)
        append.producer, append.epoch, append.sequence = producer, epoch, number
        append.after = after
        if refusal is None:
            if self._context.quotas.enabled:
                under_way = self._under_way = self._under_way or {}
                under_way[owner] = max(number + count, under_way.get(owner, 0))
            return append
        if self._under_way and number + count <= self._under_way.get(owner, 0):
            return append  # it follows another one that is stored, or both fail
        return Refused(append, refusal)

    def refuse(self, refused: Refused, error: RillnodeError | None = None) -> None:
        """Tell that an append was not stored before, or why that is not known; once."""
        asked: Token | None
        asked, refused.append.token = refused.append.token, None
        if asked is not None:
            self._answer(asked, -1, error or refused.refusal)

    def opening(
        self,
        origin: Origin,
        return_route: Route,
        request: native.OpenProducerRequest,
        answers: Answers,
    ) -> OpenProducer | None:
        """What opens a producer's name; None where that is refused, and told why."""
        name = request.name.encode()
        if not 0 < len(name) <= PRODUCER_BYTES_MAX:
            error = _bad_name(f"1 to {PRODUCER_BYTES_MAX} bytes in UTF-8, not {len(name)}")
            answers.append((return_route, failed(request.request_id, error)))
            return None
        token = Opening(origin, return_route, request.request_id)
        now = self._context.clock.now_ms()
        return OpenProducer(token=token, log=self.log, producer=name, received_at=now)

    def opened(self, operation: OpenProducer) -> None:
        """Answer an opening that is complete; harmless when repeated."""
        asked: Opening | None
        asked, operation.token = operation.token, None
        if asked is not None:
            answer = (asked.return_route, asked.answer(operation))
            self._context.router.reply(asked.origin, self.address, [answer])

    def insert(self, asker: Worker, entries: Insertion, run: Told, late: Told) -> None:
        """Append what another actor has; the stream's own takes no part.

        Nothing keeps the order between this and what is sent to that one.

        Args:
            asker: whose entries they are.
            entries: what to append.
            run: told in a turn of the asker what has become of it.
            late: told instead when the asker's instance is gone, and after `run` has failed.
        """
        columns = entries.metas or None, entries.entry_keys or None, entries.headers or None
        count, flags = len(entries.items), flags_of(*columns)
        body = pack_body(entries.items, *columns)
        token = Inserted(entries, self.address, self._owner)
        refusal = self._refusal(count, body, token, entries.principal, flags)
        if refusal is not None:
            # Not now: the asker is in the midst of something.
            then = Then(asker, lambda _: run(-1, refusal), lambda _: late(-1, refusal))
            asker.system.post(asker.address, None, then)
            return
        append = self._append(count, body, token, flags=flags)
        on, after = partial(self._inserted, run), partial(self._inserted, late)
        self._context.store.submit(asker.then(append, on, after))

    def _inserted(self, told: Told, append: Append) -> None:
        self.settle(append)
        told(append.first_index, append.error)

    def settle(self, operation: Append) -> None:
        """Answer, charge and tell of an append that is complete; harmless when repeated."""
        asked: Token | None
        asked, operation.token = operation.token, None
        if asked is None:
            return
        context, error = self._context, operation.error
        self._answer(asked, operation.first_index, error)
        if error is None and operation.is_double:
            context.followers.grown(operation.log, operation.next_index)
        elif error is None:
            context.followers.grown(operation.log, operation.first_index + operation.count)
            context.appended.entries += operation.count
            context.appended.block_bytes += len(operation.body)
        elif error.code == "stream.removed":
            context.followers.removed(operation.log)
        if context.quotas.enabled:
            self._charge(operation, asked)

    def _charge(self, operation: Append, asked: Token) -> None:
        """Have quotas count what is stored, and not what was stored before."""
        quotas, error = self._context.quotas, operation.error
        size = data_bytes(operation.count, operation.body, operation.flags)
        is_charged = True
        if isinstance(asked, NativeAppend | Part) and operation.producer:
            owner = operation.producer, operation.epoch
            under_way = self._under_way
            if under_way and under_way.get(owner) == operation.sequence + operation.count:
                del under_way[owner]
                self._under_way = under_way or None
            is_charged = asked.is_charged
            if is_charged and operation.is_double:
                quotas.give_back(asked.pusher, size)
            elif not (is_charged or operation.is_double or error):
                quotas.give_back(asked.pusher, -size)
        kept = operation.kept_bytes if error is None else None
        quotas.appended(asked.owner, operation.log, size if is_charged else 0, kept)

    def _admitted(
        self,
        count: int,
        body: bytes | memoryview,
        token: Token,
        principal: str,
        *,
        flags: int = 0,
    ) -> Append | None:
        refusal = self._refusal(count, body, token, principal, flags)
        if refusal is not None:
            self._answer(token, -1, refusal)
            return None
        return self._append(count, body, token, flags=flags)

    def _append(
        self, count: int, body: bytes | memoryview, token: Token, *, flags: int = 0
    ) -> Append:
        received_at = self._context.clock.now_ms()
        if isinstance(token, Inserted):
            entries = token.entries
            kind, keys, records = entries.kind, entries.keys, entries.records
            seen, follows = entries.seen, entries.follows
        else:
            kind, keys, records, seen, follows = EntryKind.BYTES, (), (), None, ()
        timed = 0
        if kind is EntryKind.BYTES:
            pushed = self._context.pushed_keys(received_at)
            if pushed:
                keys, timed = (*keys, *((key, EVERY_ENTRY) for key in pushed)), len(pushed)
        return Append(
            token=token,
            log=self.log,
            kind=kind,
            flags=flags,
            received_at=received_at,
            count=count,
            body=body,
            keys=keys,
            timed=timed,
            records=records,
            seen=seen,
            follows=follows,
        )

    def _refusal(
        self, count: int, body: bytes | memoryview, token: Token, principal: str, flags: int
    ) -> RequestError | None:
        if self._signed_only and not isinstance(token, Inserted):
            return RequestError("stream.signed_only", "This stream takes signed messages only")
        quotas = self._context.quotas
        if not quotas.enabled:
            return None
        refusal = quotas.admit_push(self._owner, principal, data_bytes(count, body, flags))
        if refusal is not None:
            self._context.router.undelivered["over_quota"] += count
            logger.info("over_quota", extra={"log": self.log, "code": refusal.code})
        return refusal

    def _answer(self, token: Token, first_index: int, error: RillnodeError | None) -> None:
        if isinstance(token, Part):
            token.gathered.note(token.item, first_index, error)
        elif not isinstance(token, Inserted):  # whose asker goes on with the append itself
            answers = token.answers(first_index, error)
            self._context.router.reply(token.origin, self.address, answers)


async def was_stored(store: LogStore, append: Append) -> bool:
    """Look whether a log has numbered entries already: to store them once more does nothing.

    What is under way is not seen; the log itself has the say when it comes to it.

    Raises:
        StoreError: that cannot be told.
    """
    row = GetRecord(key=row_name(append))
    await read(store, row)
    if row.value is None:
        return False
    end = Read(log=append.log, index=0, entries_max=1, bytes_max=1)
    await read(store, end)
    return in_row(row.value, append, end.extent.next_index)


def _check_numbers(producer: bytes, epoch: int, sequence: int, count: int) -> None:
    """Check what a client says of its numbers.

    Raises:
        RequestError: `producer.name`, `producer.sequence`.
    """
    if len(producer) > PRODUCER_BYTES_MAX:
        raise _bad_name(f"at most {PRODUCER_BYTES_MAX} bytes, not {len(producer)}")
    if sequence > SEQUENCE_MAX - count or epoch > SEQUENCE_MAX:
        text = f"A producer's numbers end before {SEQUENCE_MAX}: {sequence} is too large"
        raise RequestError("producer.sequence", text)


def _bad_name(has: str) -> RequestError:
    return RequestError("producer.name", f"A producer's name has {has}")


def _check_pushed(request: native.AppendRequest | native.AppendItem) -> None:
    if request.flags & ~FLAGS_PUSHED:
        raise CodecError(
            "entries.flags", f"no columns that clients may push: flags {request.flags}"
        )
    check_body(request.count, request.body, request.flags)
