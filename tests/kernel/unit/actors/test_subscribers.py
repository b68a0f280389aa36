"""Tests the count of each log's followers."""

from rillnode.actors.core.streams.subscribers import Subscribers


def test_followers_of_all_protocols_count() -> None:
    subscribers = Subscribers()
    subscribers.add(1, "rillnode", 1)
    subscribers.add(1, "rillnode", 1)
    subscribers.set(1, "streamr", 5)
    subscribers.set(2, "streamr", 3)
    assert (subscribers.of(1), subscribers.of(2), subscribers.of(3)) == (7, 3, 0)
    subscribers.add(1, "rillnode", -1)
    subscribers.set(1, "streamr", 2)
    assert subscribers.of(1) == 3


def test_a_log_that_nobody_follows_takes_no_memory() -> None:
    subscribers = Subscribers()
    for log in range(100):
        subscribers.add(log, "rillnode", 1)
        subscribers.set(log, "streamr", 4)
        subscribers.set(log, "streamr", 0)
        subscribers.add(log, "rillnode", -1)
    assert vars(subscribers) == vars(Subscribers())
