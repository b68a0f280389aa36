"""Tests that what a tracer raises costs nobody an answer, and its collector no time at a stop."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from rillnode.actors.log import Operation
from rillnode.node.config import Config
from rillnode.node.telemetry import otel
from rillnode.node.telemetry.telemetry import Tracing
from rillnode.node.testing.contract.stores.driver import append


class Broken:
    """A tracer, and the store that it is told of, that are broken."""

    def begin(self, *_: object, **__: object) -> Any:
        raise ValueError("planted")

    def completed(self, _: Sequence[Operation]) -> None:
        raise ValueError("planted")


def test_who_waits_is_told_whatever_a_tracer_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Operation] = []
    tracing = Tracing(Broken())
    monkeypatch.setattr(tracing, "_store", Broken(), raising=False)
    operation = append(b"x")
    with pytest.raises(ValueError, match="planted"):
        tracing.complete(done.extend)([operation])
    assert done == [operation]


class Collector:
    """Stands where the exporter would: each answer comes after its time, or when nobody waits.

    Attributes:
        took: how many spans each request had.
        ended: it was shut down.
        released: what is asked is answered at once.
    """

    def __init__(self, *answers: tuple[float, bool], hangs: bool = False) -> None:
        self.took: list[int] = []
        self.ended = threading.Event()
        self.released = threading.Event() if hangs else self.ended
        self._answers = [*answers]

    def __call__(self, **_: object) -> "Collector":
        return self

    def export(self, spans: Sequence[object]) -> SpanExportResult:
        seconds, takes = self._answers.pop(0)
        self.took.append(len(spans))
        self.released.wait(seconds)
        return SpanExportResult.SUCCESS if takes else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        assert not self.ended.is_set(), "once"
        self.ended.set()


def sending(
    monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> tuple[Callable[[], None], Callable[[], float]]:
    """What sends a span and waits until that is begun, and what ends; it returns in what time."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setattr(otel, "OTLPSpanExporter", collector)
    tracer, close = otel.exporting(Config(name="a"))

    def send() -> None:
        before = len(collector.took)
        tracer.begin("push", "s").end({})
        while len(collector.took) == before:
            time.sleep(0.001)

    def timed() -> float:
        begun = time.monotonic()
        close()
        return time.monotonic() - begun

    return send, timed


@pytest.mark.parametrize("hangs", [False, True])
def test_a_collector_that_has_failed_is_hardly_waited_for(
    monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    collector = Collector((0.0, False), (20.0, False), hangs=hangs)
    send, close = sending(monkeypatch, collector)
    send()
    send()
    assert close() < 2.0
    assert collector.ended.is_set()
    assert collector.took == [1, 1]
    collector.released.set()


def test_a_collector_that_is_slow_is_given_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 3 * otel.LAST_SECONDS
    collector = Collector((0.0, False), (0.0, True), (seconds, True))
    send, close = sending(monkeypatch, collector)
    for _ in range(3):
        send()
    assert seconds / 2 < close() < otel.EXPORT_SECONDS_MAX
    assert collector.took == [1, 1, 1]
