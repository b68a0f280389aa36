"""Appends to a stream's log: checks, charges, and answers when it is durable.

It makes operations and settles them when complete; the stream's actor gives them to the store. To
settle one needs no instance of that actor: who has asked is told the truth when it is gone, too.
"""

import logging
from collections.abc import Iterator, Sequence

from msgspec import Struct

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.answers import failed
from rillnode.actors.core.streams.asked import Answers, NativeAppend, Opening, Pushes
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.inside import AppendEntries
from rillnode.actors.log import Append, OpenProducer, StreamRecord
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
from rillnode.codecs.limits import PRODUCER_BYTES_MAX, SEQUENCE_MAX
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.routing.stream import PushRequest

logger = logging.getLogger("rillnode.actors.core.streams.stream")


class Inserted(Struct, frozen=True):
    """The token of an AppendEntries; `owner` is the stream's."""

    request: AppendEntries
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

    __slots__ = ("_answered", "_context", "_failures", "_from", "_id", "_indexes", "_origin", "_to")

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
        self._answered = False

    def note(self, item: int, first_index: int, error: RillnodeError | None) -> None:
        """An item is stored, or nothing of it is."""
        if error is None:
            self._indexes[item] = first_index
        else:
            self._failures.append(native.Failure.of(item, error))

    def answer(self) -> None:
        """Tell who has asked, once; every item is noted."""
        if self._answered:
            return
        self._answered = True
        response = native.PositionsResponse(self._id, self._indexes, self._failures)
        answer = (self._to, native.encode(response))
        self._context.router.reply(self._origin, self._from, [answer])


class Part(Struct, frozen=True):
    """The token of one item of an AppendManyRequest; `owner` is the stream's."""

    gathered: Gathered
    item: int
    appends: "Appends"
    owner: str


Token = Pushes | NativeAppend | Inserted | Part


class Appends:
    """The appends of one partition of one stream."""

    __slots__ = ("_context", "_log", "_own_address", "_owner", "_signed_only")

    def __init__(self, context: StreamContext, own_address: bytes, log: int, owner: str) -> None:
        self._context = context
        self._own_address = own_address
        self._log = log
        self._owner = owner
        self._signed_only = False

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
            append = self._append(len(items), pack_body(items), token, origin.principal)
            if append is not None:
                yield append
            start += len(items)

    def block(
        self, origin: Origin, return_route: Route, request: native.AppendRequest, answers: Answers
    ) -> Append | None:
        """What appends a native client's block; None where that is refused, and told why."""
        try:
            _check_pushed(request)
            if request.producer:
                _check_numbers(request.producer, request.epoch, request.sequence, request.count)
        except (CodecError, RequestError) as error:
            answers.append((return_route, failed(request.request_id, error)))
            return None
        token = NativeAppend(origin, return_route, request.request_id, self._owner)
        append = self._append(
            request.count, request.body, token, origin.principal, flags=request.flags
        )
        if append is not None and request.producer:
            append.producer, append.epoch = request.producer, request.epoch
            append.sequence = request.sequence
        return append

    def part(
        self,
        gathered: Gathered,
        number: int,
        item: native.AppendItem,
        producer: bytes,
        principal: str,
    ) -> Append | None:
        """What appends an item of many; None where that is refused, and noted."""
        try:
            _check_pushed(item)
            if producer:
                _check_numbers(producer, 0, item.sequence, item.count)
        except (CodecError, RequestError) as error:
            gathered.note(number, -1, error)
            return None
        token = Part(gathered, number, self, self._owner)
        append = self._append(item.count, item.body, token, principal, flags=item.flags)
        if append is not None:
            append.producer, append.sequence = producer, item.sequence
        return append

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
        return OpenProducer(token=token, log=self._log, producer=name, received_at=now)

    def opened(self, operation: OpenProducer) -> None:
        """Answer an opening that is complete; harmless when repeated."""
        asked: Opening | None
        asked, operation.token = operation.token, None
        if asked is not None:
            answer = (asked.return_route, asked.answer(operation))
            self._context.router.reply(asked.origin, self._own_address, [answer])

    def inserted(self, request: AppendEntries) -> Append | None:
        """What appends that which another actor has sent; None where that is refused, and told."""
        columns = request.metas or None, request.entry_keys or None, request.headers or None
        body = pack_body(request.items, *columns)
        token = Inserted(request, self._owner)
        return self._append(
            len(request.items), body, token, request.principal, flags=flags_of(*columns)
        )

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
            kept = operation.kept_bytes if error is None else None
            size = data_bytes(operation.count, operation.body, operation.flags)
            context.quotas.appended(asked.owner, operation.log, size, kept)

    def _append(
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
        received_at = self._context.clock.now_ms()
        if isinstance(token, Inserted):
            kind, keys = token.request.kind, token.request.keys
            records, seen = token.request.records, token.request.seen
            follows = token.request.follows
        else:
            kind, keys, records, seen, follows = EntryKind.BYTES, (), (), None, ()
        timed = 0
        if kind is EntryKind.BYTES:
            pushed = self._context.pushed_keys(received_at, count)
            keys, timed = (*keys, *pushed), len(pushed)
        return Append(
            token=token,
            log=self._log,
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
            logger.info("over_quota", extra={"log": self._log, "code": refusal.code})
        return refusal

    def _answer(self, token: Token, first_index: int, error: RillnodeError | None) -> None:
        if isinstance(token, Inserted):
            token.request.answer(first_index, error)
        elif isinstance(token, Part):
            token.gathered.note(token.item, first_index, error)
        else:
            answers = token.answers(first_index, error)
            self._context.router.reply(token.origin, self._own_address, answers)


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
