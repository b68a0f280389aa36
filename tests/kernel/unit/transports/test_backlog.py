"""Tests when a peer has drained what it was sent, and when it has not in time."""

import pytest

from rillnode.codecs.errors import TransportError
from rillnode.transports.backlog import Backlog
from rillnode.transports.links import LinkLimits

LIMITS = LinkLimits(buffer_high_bytes=100, drain_seconds=10.0)


def test_a_link_is_drained_at_the_low_mark_once() -> None:
    backlog = Backlog(LIMITS)
    seen = [backlog.drained(size, float(now)) for now, size in enumerate((100, 101, 51, 50, 50))]
    assert seen == [False, False, False, True, False]


def test_a_peer_has_its_time_from_each_mark_on() -> None:
    backlog = Backlog(LIMITS)
    for now, size in ((0.0, 101), (9.9, 51), (9.95, 50), (20.0, 101), (29.9, 101)):
        backlog.drained(size, now)
    with pytest.raises(TransportError) as caught:
        backlog.drained(51, 30.0)
    assert caught.value.code == "link.not_drained"
