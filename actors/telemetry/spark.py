"""Sinks on a node with a tracer."""

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.spark.sink_job import SinkStatus
from rillnode.actors.spark.spark_sink import SinkPorts, SinkSettings, SparkSinkActor
from rillnode.actors.telemetry.messages import contexts_of
from rillnode.actors.telemetry.store import TracedStore


class TracedSink(SparkSinkActor):
    """A sink whose ranges have spans."""

    stands_for = SparkSinkActor

    def __init__(
        self,
        store: TracedStore,
        context: StreamContext,
        settings: SinkSettings,
        ports: SinkPorts,
        status: SinkStatus,
    ) -> None:
        super().__init__(context, settings, ports, status)
        self._traced = store
        self._destination = f"spark_sink/{settings.name}"

    def _requests(self, delivery: Delivery) -> None:
        parents = contexts_of(delivery.messages)
        with self._traced.turn(self._destination, None, reads="range", parents=parents):
            super()._requests(delivery)
