"""Spans of one node, as its own tests look at them."""

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rillnode.node.telemetry.otel import OpenTelemetryTracer


class Kept:
    """Spans of one node, kept in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OpenTelemetryTracer(provider)

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.all(name)
        return span

    @property
    def names(self) -> set[str]:
        return {span.name for span in self._exporter.get_finished_spans()}


def told(span: ReadableSpan) -> dict[str, Any]:
    return {
        name.removeprefix("messaging."): value for name, value in (span.attributes or {}).items()
    }
