"""Pages of frames out of answers, some of which were lost, or are not what was asked."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from rillnode.actors.jetstream.connection import Connection
from rillnode.actors.jetstream.fetching import BATCH_MAX, fetch
from rillnode.actors.jetstream.messages import Message
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import Frame, LogLost


def stored(
    sequence: int | str, previous: int | None, data: bytes = b"x", subject: str = "s"
) -> Message:
    """A message of a batch; or of none, where it has no previous one."""
    headers = f"NATS/1.0\r\nNats-Subject: {subject}\r\nNats-Sequence: {sequence}\r\n"
    if previous is not None:
        headers += f"Nats-Num-Pending: 1\r\nNats-Last-Sequence: {previous}\r\n"
    return Message(b"i", b"1", f"{headers}\r\n".encode(), data)


def status(code: int) -> Message:
    return Message(b"i", b"1", b"NATS/1.0 %d Said\r\n\r\n" % code, b"")


class Answering(Connection):
    """Gives the same answers to whatever it is asked; at their end none comes."""

    def __init__(self, answers: Sequence[Message], version: str = "2.12.0") -> None:
        super().__init__(JetStreamOptions(servers=()))
        self._answers = list(answers)
        self._version = version

    @property
    def version(self) -> str:
        return self._version

    async def ask(
        self,
        subject: bytes,
        data: bytes,
        *,
        headers: bytes = b"",
        take: Callable[[Message], bool] | None = None,
    ) -> Message:
        assert subject == b"$JS.API.DIRECT.GET.log"
        while self._answers:
            message = self._answers.pop(0)
            if take is None or not take(message):
                return message
        raise LogLost("no answer came in time")


def read(answers: Sequence[Message], *, after: int = 4, bytes_max: int = 100) -> list[int]:
    """The sequences of a page."""
    found = asyncio.run(fetch(Answering(answers), "log", "s", after, bytes_max))
    return [frame.sequence for frame in found]


def test_a_batch_is_a_page() -> None:
    answers = [stored(5, 0, b"a"), stored(7, 5, b""), stored(8, 7, b"c"), status(204)]
    found = asyncio.run(fetch(Answering(answers), "log", "s", 4, 100))
    assert found == [Frame(5, b"a"), Frame(7, b""), Frame(8, b"c")]


@pytest.mark.parametrize(
    ("answers", "sequences"),
    [
        # One between was lost, the end was, or an answer of another question came.
        ([stored(5, 0), stored(7, 6), stored(8, 7)], [5]),
        ([stored(5, 0), stored(6, 5)], [5, 6]),
        ([stored(5, 0), stored(6, 5), status(408)], [5, 6]),
        ([stored(5, 0), stored(5, 5), stored(6, 5)], [5]),
        ([stored(5, 0), stored(6, 5, subject="other")], [5]),
        ([stored(5, 0), stored("x", 5)], [5]),
        # More than was asked for.
        ([stored(5, 0, b"x" * 60), stored(6, 5, b"x" * 60)], [5]),
        ([stored(5, 0, b"x" * 600)], [5]),
        # A replica of an early version, which knows of no batches.
        ([stored(5, None)], [5]),
        ([status(404)], []),
        ([status(204)], []),
    ],
)
def test_a_page_has_no_hole(answers: Sequence[Message], sequences: list[int]) -> None:
    assert read(answers) == sequences


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [status(408)],
        [status(503)],
        # The first ones were lost.
        [stored(7, 6), stored(8, 7), status(204)],
        [stored(4, 0), status(204)],
        [stored("", 0)],
        [stored("9" * 21, 0)],
        [stored(5, 0, subject="other")],
        [Message(b"i", b"1", b"", b"no headers")],
    ],
)
def test_an_answer_without_a_page_is_lost(answers: Sequence[Message]) -> None:
    with pytest.raises(LogLost):
        read(answers)


def test_a_server_that_does_not_end_is_not_listened_to_for_ever() -> None:
    answers = [stored(number, number - 1 if number > 1 else 0, b"") for number in range(1, 5_000)]
    assert len(read(answers, after=0)) == BATCH_MAX


@pytest.mark.parametrize(
    ("answers", "sequences"),
    [
        ([stored(5, None), stored(6, None), stored(7, None)], [5, 6, 7]),
        ([stored(5, None), status(404), stored(7, None)], [5]),
        ([stored(5, None), stored(6, None, subject="other"), stored(7, None)], [5, 7]),
        ([stored(5, None), stored(7, None)], [5]),
        ([stored(9, None), stored(10, None)], [9, 10]),
        ([stored(5, None)], [5]),
        ([status(404)], []),
    ],
)
def test_early_servers_are_asked_for_each(answers: Sequence[Message], sequences: list[int]) -> None:
    found = asyncio.run(fetch(Answering(answers, "2.10.26"), "log", "s", 4, 3))
    assert [frame.sequence for frame in found] == sequences
