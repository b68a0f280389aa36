"""Traces what Streamr's clients are sent."""

from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.fanout import Audience
from rillnode.actors.streamr.relay import RelayActor
from rillnode.actors.telemetry.store import TracedStore


class TracedRelay(RelayActor):
    """A relay whose broadcasts have spans, until the store has given what is sent."""

    stands_for = RelayActor

    def __init__(
        self,
        store: TracedStore,
        context: StreamrContext,
        stream_id: str,
        partition: int,
        clients: Audience,
    ) -> None:
        super().__init__(context, stream_id, partition, clients)
        self._traced = store

    def _read_on(self) -> None:
        if self._next >= self._grown_to:  # a look whether there is more, and nothing to send yet
            super()._read_on()
            return
        with self._traced.turn(self._stream_id, self._partition, reads="deliver"):
            super()._read_on()
