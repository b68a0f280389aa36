"""Builds a node's parts with a tracer.

That is decided once, when a node starts: without a tracer it has the plain parts and its messages
pass nothing that knows of spans.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Final

from rillnode.actors.core.links.connection import ConnectionActor, PeerContext
from rillnode.actors.core.links.dialling import PeerActor
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Complete, Operation
from rillnode.actors.ports import Tracer
from rillnode.actors.telemetry.batches import traced
from rillnode.actors.telemetry.links import Forwarding, TracedConnection, TracedPeer
from rillnode.actors.telemetry.messages import TracedRouter
from rillnode.actors.telemetry.store import traced_store
from rillnode.codecs.errors import ConfigError
from rillnode.node.installed import install_command
from rillnode.node.plugin import PlugIn, Variants

_MODULES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class Tracing(Variants):
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
        return replace(context, store=self._store, actor=self.actor)

    def peers(self, context: PeerContext) -> PeerContext:
        """What the actors of links and peers work with."""
        forwarding = Forwarding(self._tracer)
        made: dict[type[Worker], Callable[..., Worker]] = {
            ConnectionActor: partial(TracedConnection, forwarding),
            PeerActor: partial(TracedPeer, forwarding),
        }
        return replace(context, actor=lambda plain: made.get(plain, plain))

    def actor(self, plain: type[Worker]) -> Callable[..., Worker]:
        """Makes actors that tell of their batches, if those of that class have any."""
        return traced(self._store, plain)

    async def close(self) -> None:
        """Hand over what was not handed over yet."""
        if self._close is not None:
            await asyncio.to_thread(self._close)


class Telemetry(PlugIn):
    """Spans of what a node does, where `[telemetry]` or whoever made the node asks for them."""

    @property
    def variants(self) -> Variants:
        """The parts that tell a tracer: the one that the node was given, or the configured one.

        Raises:
            ConfigError: the extra that spans need is not installed.
        """
        tracer: Tracer | None = self.host.given.get("telemetry")
        if tracer is not None:
            return Tracing(tracer)
        if not all(map(_installed, _MODULES)):
            text = f"telemetry.enabled: spans need OpenTelemetry: `{install_command('telemetry')}`"
            raise ConfigError("plugin.extra", text, key="telemetry.enabled")
        # Here, because a node with a tracer of its own does without the extra.
        from rillnode.node.telemetry.otel import exporting

        return Tracing(*exporting(self.host.config))


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False
