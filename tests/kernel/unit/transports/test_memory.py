from collections import deque
from collections.abc import Callable

from link_support import ManualClock
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports.links import LinkLimits
from rillnode.transports.memory import connect_memory

LIMITS = LinkLimits(buffer_high_bytes=100, buffer_bytes_max=1_000)


class Bench:
    """A link whose loop and clock a test turns by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.posted = deque[Callable[[], object]]()
        self.near, self.far = Recorder(), Recorder()
        self.near_link, self.far_link = connect_memory(
            self.near,
            self.far,
            dialling_principal="client",
            accepting_principal="node",
            post=self.posted.append,
            clock=self.clock,
            limits=LIMITS,
        )

    def turn(self) -> None:
        while self.posted:
            self.posted.popleft()()


def test_both_ends_are_open_at_once() -> None:
    bench = Bench()
    assert bench.near.link is bench.near_link
    assert bench.far.link is bench.far_link
    assert not bench.posted


def test_messages_are_handed_over_by_reference_in_one_batch() -> None:
    bench = Bench()
    first, second = b"first" * 3, b"second" * 3
    bench.near_link.send([first])
    bench.near_link.send((second,))
    assert len(bench.posted) == 1
    assert bench.near_link.buffered_bytes == 33
    bench.turn()
    assert bench.far.calls == ["opened", "messages"]
    assert bench.far.messages[0] is first
    assert bench.far.messages[1] is second
    assert bench.near_link.buffered_bytes == 0


def test_drain_time_runs_only_while_above_the_high_mark() -> None:
    bench = Bench()
    bench.far_link.pause_reading()
    bench.near_link.send([bytes(100)])
    assert bench.clock.timers == 0
    bench.near_link.send([b"x"])
    assert bench.clock.timers == 1
    bench.clock.advance(29.0)
    bench.far_link.resume_reading()
    bench.turn()
    bench.clock.advance(60.0)
    bench.turn()
    assert bench.near.calls == ["opened", "drained"]


def test_a_reader_that_does_not_drain_ends_the_link_and_frees_what_waited() -> None:
    bench = Bench()
    bench.far_link.pause_reading()
    bench.near_link.send([bytes(101)])
    bench.clock.advance(30.0)
    bench.turn()
    assert bench.near.reason == "the peer reads too slowly"
    assert bench.far.reason == "closed by the peer"
    assert bench.near_link.buffered_bytes == 0
    assert bench.clock.timers == 0


def test_close_waits_for_a_paused_reader_but_not_for_ever() -> None:
    bench = Bench()
    bench.far_link.pause_reading()
    bench.near_link.send([b"text"])
    bench.near_link.close("done")
    bench.turn()
    assert bench.near.reason is None
    bench.clock.advance(5.0)
    assert bench.near.reason == "done"
    assert bench.far.messages == []


def test_nothing_is_left_behind_after_a_close() -> None:
    bench = Bench()
    bench.far_link.pause_reading()
    bench.near_link.send([bytes(200)])
    bench.near_link.close("done")
    bench.far_link.close("too")
    bench.clock.advance(100.0)
    bench.turn()
    assert bench.clock.timers == 0
    bench.far_link.resume_reading()
    bench.near_link.send([b"x"])
    bench.turn()
    assert bench.far.calls.count("closed") == 1
