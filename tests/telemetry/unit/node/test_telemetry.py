"""Tests that what a tracer raises costs nobody an answer."""

from collections.abc import Sequence
from typing import Any

import pytest

from rillnode.actors.log import Operation
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
