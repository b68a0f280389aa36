"""Tests what may be lost with a WebSocket."""

import pytest

from rillnode.node.streamr.client import handed_over
from rillnode.node.streamr.client.handed_over import HandedOver

HERE, THERE = ("s", 0), ("s", 1)


def test_what_no_answer_has_covered_may_be_lost() -> None:
    found = HandedOver()
    found.add(1, HERE)
    found.add(2, THERE)
    found.settled(3, HERE)
    found.broken()
    assert not found.take_loss(HERE)
    assert found.take_loss(THERE)
    assert not found.take_loss(THERE)


def test_an_answer_covers_what_was_handed_over_before_it_was_asked() -> None:
    found = HandedOver()
    found.add(1, HERE)
    found.add(3, HERE)
    found.settled(2, HERE)
    found.broken()
    assert found.take_loss(HERE)


def test_an_answer_on_the_next_websocket_covers_nothing_of_the_last() -> None:
    found = HandedOver()
    found.add(1, HERE)
    found.broken()
    found.settled(2, HERE)
    assert found.take_loss(HERE)
    found.broken()
    assert not found.take_loss(HERE)


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed_over, "HANDED_OVER_MAX", 1)
    found = HandedOver()
    found.add(1, HERE)
    found.add(2, THERE)
    found.broken()
    assert not found.take_loss(HERE)
    assert found.take_loss(THERE)
