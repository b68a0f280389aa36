"""The way to work queues: who may take it, the actor that its first message makes, and the list."""

from contextlib import suppress
from functools import partial
from typing import Final

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.queues.names import (
    LISTED,
    listed_record,
    parse_listed,
    parse_queue_address,
)
from rillnode.actors.core.queues.queue import QueueActor
from rillnode.actors.core.refusals import not_granted
from rillnode.actors.core.router import UNKNOWN, Admits, Resolve
from rillnode.actors.core.streams.answers import failed, invalid_request, is_error
from rillnode.actors.core.streams.asked import ServiceRequest
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.listing import Page
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import FindStream, ListRecords, PutRecord
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RillnodeError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.requests import decode_request

logger = event_logger("rillnode.actors.core.queues.service")

ADDRESS: Final = b"queues"

PAGE_QUEUES: Final = 100
"""Queues that are read from the store, and looked through, in one turn."""


def queue_resolver(context: StreamContext) -> Resolve:
    """Make the actors of queues when the first message for their address comes."""

    def resolve(address: bytes, _: Origin) -> Cell | None:
        parsed = parse_queue_address(address)
        if parsed is None:
            return None
        return context.system.spawn(partial(context.actor(QueueActor), context, address, *parsed))

    return resolve


def queue_guard(access: Access) -> Admits:
    """Keep out who may not pull the stream of an address."""

    def admits(address: bytes, origin: Origin) -> bool:
        parsed = parse_queue_address(address)
        if parsed is not None and access.allows(origin.principal, "pull", parsed[0]):
            return True
        logger.info("refused", extra={"principal": origin.principal})
        return False

    return admits


def explain_queue_refusal(address: bytes, origin: Origin, _: bytes) -> RillnodeError:
    """Say what the guard has missed."""
    parsed = parse_queue_address(address)
    if parsed is None:
        return UNKNOWN
    return not_granted("stream.unknown", origin.principal, "pull", parsed[0])


async def listed_queues(
    context: StreamContext, stream: str, after: tuple[str, str]
) -> tuple[list[tuple[str, str, str]], tuple[str, str] | None]:
    """A page of queues: stream, queue and owner of the stream; and where the next one begins.

    What is listed of a stream that is no more is taken out of the list.
    """
    prefix = listed_record(stream, "") if stream else LISTED
    begins = listed_record(*after) if after[0] else ""
    page = ListRecords(prefix=prefix, after=begins, limit=PAGE_QUEUES)
    await read(context.store, page)
    names = [(*parse_listed(name), value) for name, value in page.records]
    finds = {name: FindStream(name=name) for name, _, _ in names}
    with suppress(StoreError):  # of one that others serve: it is not told of here
        await read(context.store, *finds.values())
    found: list[tuple[str, str, str]] = []
    for name, queue, value in names:
        find = finds[name]
        record = find.record
        if find.error is not None:
            continue
        if record is not None and value == b"%d" % record.id:
            found.append((name, queue, record.owner))
        else:
            context.store.submit(PutRecord(key=listed_record(name, queue)))
    more = len(page.records) == page.limit
    return found, (names[-1][0], names[-1][1]) if more else None


class QueueService(Worker):
    """Lists work queues, at `queues`; one per node."""

    mailbox_messages_max = 4_096
    on_failure = "restart"
    interleaves = True

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests."""
        for wire in message.messages:
            asked = ServiceRequest(self._context.router, message.origin, wire)
            try:
                asked.request = decode_request(wire.payload, speaks_native=message.origin.native)
            except CodecError as error:
                logger.info("bad_request", extra={"code": error.code})
                if not is_error(error):
                    asked.reply(invalid_request(error))
                continue
            if isinstance(asked.request, native.ListQueuesRequest):
                self.begin(self._list(asked, asked.request), partial(_refuse, asked))
            else:
                asked.reply(invalid_request(asked.request))

    async def _list(self, asked: ServiceRequest, request: native.ListQueuesRequest) -> None:
        allows, principal = self._context.access.allows, asked.origin.principal
        answer = Page[native.QueueName]()
        after: tuple[str, str] | None = request.after_stream, request.after_queue
        while after is not None and not answer.full:
            found, after = await listed_queues(self._context, request.stream, after)
            answer.take(
                native.QueueName(stream, queue)
                for stream, queue, _ in found
                if allows(principal, "pull", stream)
            )
        last = answer.items[-1] if answer.full else None
        response = native.QueuesResponse(request.request_id, answer.items, last)
        asked.reply(native.encode(response))


def _refuse(asked: ServiceRequest, error: RillnodeError) -> None:
    asked.reply(failed(asked.request.request_id, error))
