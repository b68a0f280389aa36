"""The contract of links finds mistakes of different kinds."""

from collections.abc import Callable
from typing import Any

import pytest

from contract.test_links import TestMemory as MemoryLinks
from planting import in_the_long_part
from rillnode.transports.memory import MemoryLink

send, deliver, finish = MemoryLink.send, MemoryLink._deliver, MemoryLink._finish  # pyright: ignore[reportPrivateUsage]


def nothing(*_: object) -> None:
    pass


def sends_the_last_first(self: Any, messages: Any) -> None:
    send(self, messages[::-1])


def sends_twice(self: Any, messages: Any) -> None:
    send(self, messages)
    if len(self._outbox) == 7:
        send(self, messages[:1])


def keeps_the_batch(self: Any, messages: Any) -> None:
    self._post(lambda: send(self, messages))


def delivers_inside_send(self: Any, messages: Any) -> None:
    send(self, messages)
    deliver(self)


def cuts_what_is_too_long(self: Any, messages: Any) -> None:
    send(self, [one[: self.info.message_bytes_max] for one in messages if one])


def does_not_bound(self: Any, messages: Any) -> None:
    if self._reason is None:
        self._outbox += messages
        self._buffered += sum(map(len, messages))
        self._post_delivery()


def delivers_after_a_close(self: Any) -> None:
    reason, self._peer._reason = self._peer._reason, None
    deliver(self)
    self._peer._reason = self._peer._reason or reason


def resumes_by_itself(self: Any) -> None:
    self._paused = True
    self._post(self.resume_reading)


def drops_what_is_buffered(self: Any, reason: str) -> None:
    if self._reason is None:
        self._reason = reason
        self._outbox.clear()
        self._post(self._finish)


def takes_the_others_reason(self: Any) -> None:
    self._peer._reason = self._reason
    finish(self)


def tells_the_end_twice(self: Any) -> None:
    finish(self)
    self._post(lambda: self._events.link_closed(self._reason))


def closes_inside_close(self: Any, reason: str) -> None:
    self._reason = self._reason or reason
    finish(self)


MISTAKES: list[tuple[str, Callable[..., Any], str]] = [
    ("send", cuts_what_is_too_long, "the_largest_message_passes_and_a_larger_one_is_refused"),
    ("send", does_not_bound, "a_reader_that_falls_too_far_behind_is_closed_at_once"),
]

FURTHER: list[tuple[str, Callable[..., Any], str]] = [
    ("send", sends_the_last_first, "messages_arrive_once_in_order_both_ways"),
    ("send", sends_twice, "messages_arrive_once_in_order_both_ways"),
    ("send", keeps_the_batch, "a_batch_may_be_changed_after_it_was_sent"),
    ("send", delivers_inside_send, "events_never_come_from_inside_send_or_close"),
    ("send", does_not_bound, "a_reader_that_does_not_drain_in_time_is_closed"),
    ("pause_reading", nothing, "a_paused_reader_gets_nothing_until_it_resumes"),
    ("pause_reading", nothing, "a_sender_is_told_when_its_bytes_have_drained"),
    ("pause_reading", resumes_by_itself, "a_reader_that_pauses_at_a_batch_gets_no_other_until_it_"),
    ("_deliver", delivers_after_a_close, "nothing_is_told_of_messages_after_one_s_own_close"),
    ("close", drops_what_is_buffered, "closing_writes_what_is_buffered_and_tells_both_ends_once"),
    ("close", closes_inside_close, "events_never_come_from_inside_send_or_close"),
    ("_finish", takes_the_others_reason, "both_ends_that_close_at_once_keep_their_own_reasons"),
    ("_finish", tells_the_end_twice, "a_closed_link_takes_every_call_and_does_nothing"),
    ("_finish", nothing, "a_close_that_cannot_write_what_is_buffered_is_bounded"),
]


class Suite(MemoryLinks):
    __test__ = False
    seconds_max = 2.0


@pytest.mark.parametrize(
    ("method", "mistake", "promise"),
    [*MISTAKES, *in_the_long_part(FURTHER)],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_mistake_breaks_the_promise_that_it_is_about(
    method: str, mistake: Callable[..., Any], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryLink, method, mistake)
    (name,) = [one for one in dir(Suite) if one.startswith(f"test_{promise}")]
    test: Callable[..., None] = getattr(Suite(), name)
    end = {"dialled": True} if hasattr(test, "pytestmark") else {}
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        test(**end)
