"""Signatures of what came together are verified by the loop and its helpers, whoever is faster."""

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from rillnode.actors.core.threads import SYSTEM_THREADS, SystemThreads
from rillnode.actors.streamr import verifying
from rillnode.actors.streamr.connection import Terms
from rillnode.actors.streamr.verifying import GROUP_MIN, VerifyingThreads, verify_each
from rillnode.codecs.streamr.signing import Verdict, verify_message
from rillnode.codecs.streamr.stream_message import StreamMessage
from streamr_support import BOB, Client, StreamrCore, message, publish, with_streamr

TRUE = message(1)
MIXED = [
    TRUE,
    replace(TRUE, content='{"a":2}'),
    message(2, key=None),
    replace(TRUE, signature="0x00"),
    message(3, key=BOB),
    replace(TRUE, signature_type=9),
    *(message(number) for number in range(4, 30)),
]
VERDICTS = [
    Verdict.VALID,
    Verdict.FORGED,
    Verdict.UNSIGNED,
    Verdict.MALFORMED,
    Verdict.VALID,
    Verdict.UNKNOWN_TYPE,
    *[Verdict.VALID] * 26,
]


class PacedThreads(SystemThreads):
    """Helpers that do as much as a test says, when it says so."""

    def __init__(self, pace: Callable[[Any], object]) -> None:
        super().__init__()
        self.pace = pace
        self.taken: list[Any] = []
        self.started = 0

    def start(self, run: Callable[[], object], name: str) -> Any:
        self.started += 1
        return super().start(lambda: None, name)

    def queue(self) -> Any:
        threads = self

        class Paced:
            def put(self, group: Any) -> None:
                if group is not None:
                    threads.taken.append(group)
                    threads.pace(group)

            def qsize(self) -> int:
                return 0

        return Paced()


def never_come(_: Any) -> None:
    """What a helper does that has no core."""


def do_everything(group: Any) -> None:
    """What a helper does that is faster than the loop."""
    group.help()


def begin_without_an_end(group: Any) -> None:
    """What a helper does that has no core after it took some."""
    for _ in range(3):
        group._left.pop()


@pytest.mark.parametrize(
    "pace",
    [never_come, do_everything, begin_without_an_end],
    ids=["never comes", "does everything", "stops half-way"],
)
def test_verdicts_are_the_same_however_fast_helpers_are(pace: Callable[[Any], object]) -> None:
    verify = VerifyingThreads(PacedThreads(pace), 1)
    assert verify_each(MIXED) == VERDICTS
    assert verify(MIXED) == VERDICTS
    assert verify(MIXED[:GROUP_MIN]) == VERDICTS[:GROUP_MIN]


def test_real_helpers_find_the_same() -> None:
    verify = VerifyingThreads(SYSTEM_THREADS, 3)
    try:
        for _ in range(20):
            assert verify(MIXED) == VERDICTS
    finally:
        verify.stop()
    assert verify(MIXED) == VERDICTS, "without them it goes on"


def test_helpers_are_started_for_groups_only() -> None:
    threads = PacedThreads(never_come)
    verify = VerifyingThreads(threads, 2)
    for count in range(GROUP_MIN):
        assert verify(MIXED[:count]) == VERDICTS[:count]
    assert (threads.started, threads.taken) == (0, [])
    verify(MIXED)
    verify(MIXED)
    assert (threads.started, len(threads.taken)) == (2, 4)
    alone = VerifyingThreads(threads, 0)
    assert alone(MIXED) == VERDICTS
    assert threads.started == 2


def test_a_helper_that_does_not_come_is_not_called_again() -> None:
    blocked, done = Event(), Event()
    verify = VerifyingThreads(SYSTEM_THREADS, 1)
    verify(MIXED)

    class Blocking:
        def help(self) -> None:
            blocked.set()
            done.wait(10)

    queue: Any = verify._queue  # pyright: ignore[reportPrivateUsage]
    queue.put(Blocking())
    assert blocked.wait(10)
    for _ in range(50):
        assert verify(MIXED) == VERDICTS
    assert queue.qsize() == 1, "groups that nobody comes for pile up"
    done.set()
    verify.stop()


def test_what_a_helper_fails_at_the_loop_fails_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(one: StreamMessage) -> Verdict:
        if one is MIXED[-3]:
            raise ZeroDivisionError
        return verify_message(one)

    monkeypatch.setattr(verifying, "verify_message", fails)
    verify = VerifyingThreads(PacedThreads(do_everything), 1)
    with pytest.raises(ZeroDivisionError):
        verify(MIXED)
    assert verify(MIXED[:-3]) == VERDICTS[:-3]


def test_one_that_is_forged_is_refused_alone_and_the_others_keep_their_order() -> None:
    async def test(node: StreamrCore) -> None:
        await node.stream()
        asked: list[Sequence[StreamMessage]] = []
        helped = VerifyingThreads(SYSTEM_THREADS, 1)

        def verify(messages: Sequence[StreamMessage]) -> Sequence[Verdict]:
            asked.append(messages)
            return helped(messages)

        object.__setattr__(node.context, "verify", verify)
        reader = Client(node, Terms(2, 32))
        await reader.subscribe()
        sent = [message(number, previous=(number - 1, 0)) for number in range(1, 25)]
        sent[7] = replace(sent[7], content='{"a":"forged"}')
        writer = Client(node, Terms(2, 32))
        answers = await writer.ask(*(publish(one, str(at)) for at, one in enumerate(sent)))
        assert [answer[2] for answer in answers] == ["7"]
        assert "Signature validation failed" in answers[0][3]
        numbers = [body[3][1][2] for body in await reader.heard()]
        assert numbers == [one.id.timestamp for at, one in enumerate(sent) if at != 7]
        assert max(map(len, asked)) > GROUP_MIN, "what comes together is verified together"
        helped.stop()

    with_streamr(test)
