"""Ships ranges of a sink's partitions to its job, in whole blocks as the store has them."""

from collections.abc import Callable
from typing import Final

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.answers import failed
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import LogStore, Read, StreamRecord, log_id
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
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
