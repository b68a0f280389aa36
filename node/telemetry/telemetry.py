"""What a node is made of, with and without a tracer.

Whether spans are made is decided once, when a node starts: without a tracer it has the plain parts
and its messages pass nothing that knows of spans.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Final

from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Complete, Operation
from rillnode.actors.ports import Tracer
from rillnode.actors.spark.spark_sink import SparkSinkActor
from rillnode.actors.telemetry.links import Forwarding, TracedConnection, TracedPeer
from rillnode.actors.telemetry.messages import TracedRouter
from rillnode.actors.telemetry.store import traced_store
from rillnode.actors.telemetry.streams import TracedSink, TracedStreamActor
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config

_MODULES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class Telemetry:
    """The parts of a node without a tracer, which are the plain ones."""

    def router(self, system: AsyncioSystemBase) -> Router:
        """The node's router."""
        return Router(system)

    def complete(self, complete: Complete) -> Complete:
        """Whom the store hands completed operations to."""
        return complete

    def streams(self, context: StreamContext) -> StreamContext:
        """What the actors of streams work with."""
        return context

    def peers(self, context: PeerContext) -> PeerContext:
        """What the actors of links and peers work with."""
        return context

    @property
    def sink_actor(self) -> Callable[..., Worker]:
        """Makes the actor of a sink."""
        return SparkSinkActor

    # The brokers' actors: their codecs and libraries are only for who has asked for them.

    @property
    def relay_actor(self) -> Callable[..., Worker]:
        """Makes the actor of a stream partition's Streamr clients."""
        from rillnode.actors.streamr.relay import RelayActor

        return RelayActor

    @property
    def topic_actor(self) -> Callable[..., Worker]:
        """Makes the actor of a NextGraph topic."""
        from rillnode.actors.nextgraph.topic import TopicActor

        return TopicActor

    async def close(self) -> None:
        """Hand over what was not handed over yet."""


class Tracing(Telemetry):
    """The parts of a node that tell a tracer what they do.

    Args:
        tracer: takes the spans.
        close: hands over what it still has; blocks for some seconds at most.
    """

    def __init__(self, tracer: Tracer, close: Callable[[], object] | None = None) -> None:
        self._tracer = tracer
        self._close = close

    def router(self, system: AsyncioSystemBase) -> Router:
        """The node's router."""
        return TracedRouter(system)

    def complete(self, complete: Complete) -> Complete:
        """Whom the store hands completed operations to: their spans end first."""

        def ended(operations: Sequence[Operation]) -> None:
            try:
                self._store.completed(operations)
            finally:  # whatever a tracer raises, who waits for these is told
                complete(operations)

        return ended

    def streams(self, context: StreamContext) -> StreamContext:
        """What the actors of streams work with; before any of them asks the store for something."""
        self._store = traced_store(context.store, self._tracer)
        actor = partial(TracedStreamActor, self._store)
        return replace(context, store=self._store, stream_actor=actor)

    def peers(self, context: PeerContext) -> PeerContext:
        """What the actors of links and peers work with."""
        forwarding = Forwarding(self._tracer)
        return replace(
            context,
            connection_actor=partial(TracedConnection, forwarding),
            peer_actor=partial(TracedPeer, forwarding),
        )

    @property
    def sink_actor(self) -> Callable[..., Worker]:
        """Makes the actor of a sink."""
        return partial(TracedSink, self._store)

    @property
    def relay_actor(self) -> Callable[..., Worker]:
        """Makes the actor of a stream partition's Streamr clients."""
        from rillnode.actors.telemetry.streamr import TracedRelay

        return partial(TracedRelay, self._store)

    @property
    def topic_actor(self) -> Callable[..., Worker]:
        """Makes the actor of a NextGraph topic."""
        from rillnode.actors.telemetry.nextgraph import TracedTopic

        return partial(TracedTopic, self._tracer)

    async def close(self) -> None:
        """Hand over what was not handed over yet."""
        if self._close is not None:
            await asyncio.to_thread(self._close)


def telemetry(config: Config, tracer: Tracer | None) -> Telemetry:
    """What a node is made of: with the tracer that it was given, or the configured one, or none.

    Raises:
        ConfigError: spans are configured, and the extra that they need is not installed.
    """
    if tracer is not None:
        return Tracing(tracer)
    if not config.telemetry.enabled:
        return Telemetry()
    if not all(map(_installed, _MODULES)):
        raise ConfigError(
            "config.extra",
            'telemetry.enabled: spans need the extra "otel": pip install "rillnode[otel]"',
            key="telemetry.enabled",
        )
    # Here, because most nodes have neither spans nor the extra.
    from rillnode.node.telemetry.otel import exporting

    provider_tracer, close = exporting(config)
    return Tracing(provider_tracer, close)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False
