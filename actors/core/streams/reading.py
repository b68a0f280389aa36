"""Reads a stream's log for pulls and for native clients' whole blocks.

It makes operations and answers them when complete; the stream's actor gives them to the store. An
answer needs no instance of that actor: who has asked is answered when it is gone, too.
"""

from typing import Final

from msgspec.structs import replace

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.answers import failed, invalid_request
from rillnode.actors.core.streams.asked import Answers, NativeLocate, NativeRead, NativeSearch
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.pulling import Collected, Oversized, Pull, collect, encode_pulled
from rillnode.actors.core.streams.searching import SEARCH_BYTES, SEARCH_ENTRIES, only
from rillnode.actors.engine.cell import FAILURES
from rillnode.actors.log import Locate, Read
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, RequestError
from rillnode.codecs.events import event_logger
from rillnode.codecs.routing.routes import Route, WireMessage
from rillnode.codecs.routing.stream import PullRequest
from rillnode.codecs.where import Where

logger = event_logger("rillnode.actors.core.streams.stream")

LOOK_READ_BYTES: Final = 1_048_576
"""Read at a time where entries are too large for who asked."""


Asked = NativeRead | NativeSearch | NativeLocate
"""What a native client has asked for."""

FAILED: Final = ActorError("actor.failed", "The node failed at this request: its log says why")


class Reads:
    """The reads of one partition of one stream."""

    __slots__ = ("_context", "_log", "_name", "_oversized", "_own_address")

    def __init__(self, context: StreamContext, own_address: bytes, name: str, log: int) -> None:
        self._context = context
        self._own_address = own_address
        self._name = name
        self._log = log
        self._oversized: Oversized | None = None

    def pull(
        self, origin: Origin, return_route: Route, request: PullRequest, answers: Answers
    ) -> Read | None:
        """The read for a pull; None where `answers` has the answer already."""
        pull = Pull(origin, return_route, request, origin.message_bytes_max, request.index)
        if pull.limit == 0:
            answers.append((return_route, encode_pulled(request, [])))
            return None
        if self._oversized is not None:
            index = self._oversized.behind(request.index, pull.entry_bytes_max())
            pull = replace(pull, first_index=index)
        return _reading(self._log, pull)

    def blocks(self, origin: Origin, return_route: Route, request: native.ReadRequest) -> Read:
        """The read for a native client."""
        return Read(
            log=self._log,
            index=request.index,
            entries_max=request.entries_max,
            bytes_max=native.block_budget(origin.message_bytes_max, request.bytes_max),
            token=NativeRead(origin, return_route, request.request_id),
        )

    def matching(
        self, origin: Origin, return_route: Route, request: native.SearchRequest, answers: Answers
    ) -> Read | None:
        """The read for a native client's search; None where `answers` has the refusal already."""
        try:
            where = Where(request.where)
        except RequestError as error:
            answers.append((return_route, failed(request.request_id, error)))
            return None
        return Read(
            log=self._log,
            index=request.index,
            until=request.until,
            entries_max=SEARCH_ENTRIES,
            bytes_max=native.block_budget(origin.message_bytes_max, SEARCH_BYTES),
            token=NativeSearch(origin, return_route, request, where),
        )

    def locate(self, origin: Origin, return_route: Route, request: native.LocateRequest) -> Locate:
        """The look-up of a time for a native client."""
        at_ms = request.milliseconds
        if request.ago:
            at_ms = self._context.clock.now_ms() - at_ms
        token = NativeLocate(origin, return_route, request.request_id)
        return Locate(log=self._log, at_ms=at_ms, token=token)

    def done(self, operation: Read | Locate) -> Read | None:
        """Answer who has asked, or return what is to be read behind what was too large for him."""
        asked: Pull | Asked | None = operation.token
        if asked is None:
            return None
        if isinstance(operation, Locate):
            assert isinstance(asked, NativeLocate)
            self._answer(operation, asked, asked.answer(operation))
            return None
        assert not isinstance(asked, NativeLocate)
        if isinstance(asked, NativeRead | NativeSearch):
            payload = asked.answer(operation)
            if isinstance(asked, NativeSearch):
                only(self._context.store, asked.origin, operation, len(payload))
            self._answer(operation, asked, payload)
            return None
        if operation.error is not None:
            self._answer(operation, asked, invalid_request(asked.request, operation.error.text))
            return None
        found = collect(asked, operation, self._own_address)
        if found.too_large and operation.log == self._log:
            self._passed_over(found)
        look_bytes = asked.look_bytes - found.too_large_bytes
        if found.messages or look_bytes <= 0 or not found.too_large:
            payload = encode_pulled(asked.request, found.messages)
            self._answer(operation, asked, payload, unnamed=found.unnamed)
            return None
        # The answer has the entries behind them: who asks can only go on from what it gets.
        operation.token = None
        return _reading(
            operation.log,
            replace(
                asked,
                first_index=found.next_index,
                look_bytes=look_bytes,
                read_bytes_max=LOOK_READ_BYTES,
            ),
        )

    def late(self, operation: Read | Locate) -> None:
        """Answer all the same: the instance that would read on is gone, or has failed at this."""
        asked: Pull | Asked | None = operation.token
        if asked is None:
            return
        if isinstance(asked, Pull):
            operation.token = replace(asked, look_bytes=0)
        try:
            self.done(operation)
        except FAILURES:
            logger.exception("not_answered", extra={"stream": self._name})
            if isinstance(asked, Pull):
                payload = invalid_request(asked.request, FAILED.text)
            else:
                payload = failed(asked.request_id, FAILED)
            self._answer(operation, asked, payload)

    def _answer(
        self,
        operation: Read | Locate,
        asked: Pull | Asked,
        payload: bytes,
        *,
        unnamed: bool = False,
    ) -> None:
        operation.token = None  # whatever fails after this answers nobody again
        if unnamed:
            message = WireMessage(asked.return_route, (), payload)
            self._context.router.route(asked.origin, [message])
        else:
            answer = (asked.return_route, payload)
            self._context.router.reply(asked.origin, self._own_address, [answer])

    def _passed_over(self, found: Collected) -> None:
        """Count entries that somebody does not get, and remember where they lie."""
        if self._oversized is None:
            self._oversized = Oversized()
        self._oversized.note(found.first_index, found.next_index, found.largest)
        self._context.router.undelivered["entry_skipped"] += found.too_large
        logger.info(
            "entries_skipped",
            extra={
                "stream": self._name,
                "index": found.first_index,
                "entries": found.too_large,
                "bytes": found.too_large_bytes,
                "bytes_max": found.largest,
            },
        )


def _reading(log: int, pull: Pull) -> Read:
    """The next read for a pull."""
    return Read(
        log=log,
        index=pull.first_index,
        entries_max=pull.limit,
        bytes_max=pull.read_bytes_max,
        token=pull,
    )
