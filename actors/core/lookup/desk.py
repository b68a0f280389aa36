"""The desk at the address `about`: tells of routes, watches them, and has what is there stopped."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.lookup.found import ENDED, Asker, Found, Source, Wanted
from rillnode.actors.core.lookup.queues import QueueSource
from rillnode.actors.core.lookup.streams import IndexSource, StreamSource
from rillnode.actors.core.lookup.table import TableSource
from rillnode.actors.core.patterns import matcher
from rillnode.actors.core.router import UNKNOWN, Router
from rillnode.actors.core.streams.answers import failed, invalid_request, is_error
from rillnode.actors.core.streams.asked import ServiceRequest
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.waiting import Signal
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import LOOKUPS_MAX, LOOKUPS_PER_LINK_MAX, NAME_BYTES_MAX
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import LOCAL

logger = event_logger("rillnode.actors.core.lookup.desk")

ADDRESS: Final = b"about"

LOOK_SECONDS: Final = 1.0
"""How often it is looked whether something that is watched, and has no actor, is still there."""

LIST_BYTES: Final = 1_048_576
"""What one answer with routes may have: 250 of the longest."""

_BUSY: Final = RequestError(
    "route.busy", "Too many look-ups or watches at once: try again", retryable=True
)
_GONE: Final = ActorError("actor.stopped", "The node has ended this watch: watch anew")


@dataclass(slots=True, eq=False)
class _Asked(ServiceRequest):
    """One request of a peer."""

    def refuse(self, error: RillnodeError) -> None:
        """Answer why it was not done."""
        self.reply(failed(self.request.request_id, error))

    def answer(self, response: native.Response) -> None:
        """Answer it."""
        self.reply(native.encode(response))


class LookupActor(Worker):
    """Looks up routes, at `about`; one per node."""

    mailbox_messages_max = 4_096
    on_failure = "restart"
    interleaves = True

    def __init__(self, context: StreamContext) -> None:
        self._router: Router = context.router
        self._access: Access = context.access
        self._sources: Sequence[Source] = (
            TableSource(context.router, context.access, context.clock),
            StreamSource(context),
            IndexSource(context),
            QueueSource(context),
        )
        self._open: Tally[Origin] = Tally()
        self._count = 0
        self._ends: dict[Cell, list[Signal]] = {}

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests."""
        for wire in message.messages:
            asked = _Asked(self._router, message.origin, wire)
            try:
                asked.request = decode_request(wire.payload, speaks_native=message.origin.native)
            except CodecError as error:
                logger.info("bad_request", extra={"code": error.code})
                if not is_error(error):
                    asked.reply(invalid_request(error))
                continue
            match asked.request:
                case (
                    native.AboutRequest()
                    | native.StopRequest()
                    | native.WatchRequest()
                    | native.ListRoutesRequest()
                ):
                    self._begin(asked)
                case _:
                    asked.reply(invalid_request(asked.request))

    def _begin(self, asked: _Asked) -> None:
        account = asked.origin.account
        if self._open[account] >= LOOKUPS_PER_LINK_MAX or self._count >= LOOKUPS_MAX:
            asked.refuse(_BUSY)
            return
        match asked.request:
            case native.ListRoutesRequest():
                self.begin(self._counted(account, self._list(asked), LIST_BYTES), asked.refuse)
            case native.WatchRequest():
                # The node's stop does not wait for who only watches.
                self.begin(self._counted(account, self._watched(asked)))
            case _:
                self.begin(self._counted(account, self._one(asked)), asked.refuse)

    async def _counted(
        self, account: Origin, work: Coroutine[Any, Any, None], reserved: int = 0
    ) -> None:
        """Do some work for a link, which hands on no more while much is made ready for it."""
        account.reserved_bytes += reserved
        self._open[account] += 1
        self._count += 1
        try:
            await work
        finally:
            account.reserved_bytes -= reserved
            self._open.drop(account)
            self._count -= 1

    # One address -----------------------------------------------------------------------------

    async def _one(self, asked: _Asked) -> None:
        found = await self._find(asked)
        if found is None:
            raise UNKNOWN
        request_id = asked.request.request_id
        if isinstance(asked.request, native.AboutRequest):
            asked.answer(native.RouteResponse(request_id, found.info))
            return
        name = found.info.address[:64].decode(errors="replace")
        if found.stop is None:
            text = f"This is not stopped at its address ({found.info.kind}): {found.kept}"
            raise RequestError("route.kept", text)
        if not found.info.stoppable:
            text = "Only its owner, or a principal with `admin`, may stop this"
            raise RequestError("route.refused", text)
        logger.info("stopped", extra={"route": name, "by": asked.origin.principal})
        asked.answer(native.DoneResponse(request_id))  # first, as it may be the asker's own link
        found.stop()

    async def _find(self, asked: _Asked) -> Found | None:
        """What a request is about.

        Raises:
            RequestError: `request.invalid`, it is about no address.
            StoreError: the store does not say.
        """
        hops = asked.wire.onward_route[1:]
        if len(hops) != 1:
            text = "One address follows `about` in the route of such a request"
            raise RequestError("request.invalid", text)
        if hops[0].type != LOCAL:
            return None
        asker = Asker.of(asked.origin, self._access)
        for source in self._sources:
            found = await source.find(hops[0].value, asker)
            if found is not None:
                return found
        return None

    # Watching --------------------------------------------------------------------------------

    async def _watched(self, asked: _Asked) -> None:
        try:
            info = await self._watch(asked)
        except RillnodeError as error:
            asked.refuse(error)
        except asyncio.CancelledError:
            asked.refuse(_GONE)
            raise
        else:
            asked.answer(native.RouteResponse(asked.request.request_id, info))

    async def _watch(self, asked: _Asked) -> native.RouteInfo:
        """Wait for the end of what a request is about, or of the request's time."""
        wait = min(asked.request.milliseconds, native.WATCH_MILLISECONDS_MAX) / 1_000
        now = self.system.timing.monotonic
        until = now() + wait
        first = found = await self._find(asked)
        if first is None:
            raise UNKNOWN
        while found is not None and found.cell is first.cell and now() < until:
            if asked.origin.ended:
                break
            left = until - now()
            if first.cell is None:
                await self.sleep(min(LOOK_SECONDS, left))
            else:
                await self._end_of(first.cell, left)
            found = await self._find(asked)
        if found is None or found.cell is not first.cell:
            first.info.state, first.info.mailbox = ENDED, 0
            return first.info
        return found.info

    async def _end_of(self, cell: Cell, seconds: float) -> None:
        """Wait until an actor has ended, or for this long."""
        signal = Signal()
        timer = self.system.timing.call_later(seconds, signal.set)
        waiting = self._ends.get(cell)
        if waiting is None:
            waiting = self._ends[cell] = []
            before = self.system.ended.get(cell)
            self.system.ended[cell] = partial(self._ended, cell, before)
        waiting.append(signal)
        try:
            if not cell.exited:
                await signal
        finally:
            timer.cancel()
            waiting.remove(signal)

    def _ended(self, cell: Cell, before: Callable[[], object] | None) -> None:
        if before is not None:
            before()
        for signal in self._ends.pop(cell, ()):
            signal.set()

    # Lists -----------------------------------------------------------------------------------

    async def _list(self, asked: _Asked) -> None:
        request = asked.request
        if len(request.pattern.encode()) > NAME_BYTES_MAX:
            text = f"A pattern has at most {NAME_BYTES_MAX} bytes"
            raise RequestError("request.invalid", text)
        number, after = _cursor(request.after, len(self._sources))
        asker = Asker.of(asked.origin, self._access)
        wanted = _wanted(request.pattern, request.kind)
        rows: list[native.RouteInfo] = []
        while number < len(self._sources):
            source = self._sources[number]
            if not request.kind or request.kind in source.kinds:
                rows += await source.page(after, asker, wanted, native.ROUTES_MAX - len(rows))
                if len(rows) == native.ROUTES_MAX:
                    break
            number, after = number + 1, b""
        cursor = b""
        if number < len(self._sources):
            cursor = bytes((number,)) + rows[-1].address
        asked.answer(native.RoutesResponse(request.request_id, rows, cursor))


def _cursor(after: bytes, sources: int) -> tuple[int, bytes]:
    """Where a list goes on: in which source, and after which address of it.

    Raises:
        RequestError: `request.invalid`, no node has told such a place.
    """
    if not after:
        return 0, b""
    if after[0] >= sources:
        raise RequestError("request.invalid", "No list goes on there")
    return after[0], after[1:]


def _wanted(pattern: str, kind: str) -> Wanted:
    matches = matcher(pattern)

    def wanted(info: native.RouteInfo) -> bool:
        if kind and info.kind != kind:
            return False
        return pattern == "*" or bool(
            matches(info.address.decode(errors="replace")) or matches(info.name)
        )

    return wanted
