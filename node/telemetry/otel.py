"""Spans as OpenTelemetry's SDK takes and exports them; needs the extra `telemetry`.

The names of attributes are those of its conventions for messaging, which are still in development:
`SCHEMA_URL` says which version of them. An application that has a tracer provider of its own hands
`Node(..., given={"telemetry": OpenTelemetryTracer(provider)})` to the node that it embeds.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import rillnode
from rillnode.actors.ports import Span
from rillnode.node.config import Config
from rillnode.node.telemetry.config import TelemetryTable

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.30.0"

EXPORT_SECONDS_MAX: Final = 5.0
"""How long one hand-over to the collector may take; so long a node waits at its stop."""

LAST_SECONDS: Final = 0.3
"""So long a node waits at its stop for a collector that has not taken what it was sent last."""

QUEUE_SPANS_MAX: Final = 2_048
"""Spans that wait for the collector; what comes when so many do is dropped."""

_KINDS: Final = {
    "push": trace.SpanKind.SERVER,
    "pull": trace.SpanKind.SERVER,
    "range": trace.SpanKind.SERVER,
    "deliver": trace.SpanKind.PRODUCER,
    "forward": trace.SpanKind.PRODUCER,
    "commit": trace.SpanKind.INTERNAL,
}


class OpenTelemetrySpan:
    """A span that is under way."""

    __slots__ = ("_ended", "_span")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._ended = False

    @property
    def context(self) -> str:
        """Its W3C trace context."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    @property
    def opened(self) -> trace.SpanContext:
        """Its context as the SDK has it."""
        return self._span.get_span_context()

    def end(self, attributes: Mapping[str, str | int], error: str = "") -> None:
        """The work has ended, well or with an error code; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self._span.set_attributes(attributes)
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(trace.StatusCode.ERROR, error)
        self._span.end()


class OpenTelemetryTracer:
    """Hands spans to a tracer provider."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("rillnode", rillnode.__version__, schema_url=SCHEMA_URL)

    def begin(
        self, operation: str, destination: str, *, parents: Sequence[Span | str] = ()
    ) -> OpenTelemetrySpan:
        """Begin a span; see `Tracer`."""
        contexts = [_context(parent) for parent in parents]
        # An empty context, because whatever else goes on in this thread is not its parent.
        around = (
            trace.set_span_in_context(trace.NonRecordingSpan(contexts[0])) if contexts else None
        )
        span = self._tracer.start_span(
            f"{operation} {destination}",
            context=around or trace.set_span_in_context(trace.INVALID_SPAN),
            kind=_KINDS.get(operation, trace.SpanKind.INTERNAL),
            attributes={
                "messaging.system": "rillnode",
                "messaging.operation.name": operation,
                "messaging.destination.name": destination,
            },
            links=[trace.Link(context) for context in contexts[1:]],
        )
        return OpenTelemetrySpan(span)


class _Exporter(SpanExporter):
    """An exporter that knows whether the collector has taken what it was sent last.

    Attributes:
        failed: it has not.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self.failed = False
        self._exporter = exporter
        self._ended = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand spans over; none once it was shut down."""
        if self._ended:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        self.failed = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """End a pause before another try, and try nothing more; harmless when repeated."""
        if not self._ended:
            self._ended = True
            self._exporter.shutdown()


def exporting(config: Config) -> tuple[OpenTelemetryTracer, Callable[[], None]]:
    """What takes a node's spans and hands them to its collector, and what ends that.

    Spans wait in memory, so many at most: where the collector is away or slow, some are dropped.
    """
    table = config.table(TelemetryTable) or TelemetryTable()
    resource = Resource.create(
        {
            "service.namespace": "rillnode",
            "service.name": config.name,
            "service.version": rillnode.__version__,
        }
    )
    sampler = ParentBased(TraceIdRatioBased(table.sample_ratio))
    provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
    endpoint = table.endpoint.rstrip("/") + "/v1/traces"
    exporter = _Exporter(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS_MAX))
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS_MAX))

    def close() -> None:
        # In a thread that nobody waits for: a request that has no answer goes on until its time is
        # over, and the SDK would wait for it.
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(LAST_SECONDS if exporter.failed else EXPORT_SECONDS_MAX)
        exporter.shutdown()

    return OpenTelemetryTracer(provider), close


def _context(parent: Span | str) -> trace.SpanContext:
    """A parent's context: of this process, or of another node's text, which was checked."""
    if isinstance(parent, OpenTelemetrySpan):
        return parent.opened
    _, trace_id, span_id, flags = cast(str, parent).split("-")
    return trace.SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(int(flags, 16)),
    )
