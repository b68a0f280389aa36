"""Reading messages of a stream in order, as some replica of it has them (ADR-31 of NATS)."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from rillnode.actors.jetstream.checks import version_of
from rillnode.actors.jetstream.connection import API, Connection
from rillnode.actors.jetstream.messages import Message
from rillnode.actors.log.shared.port import Frame, LogLost
from rillnode.codecs.errors import StoreError

BATCH_MAX: Final = 512
"""Messages in the answer to one question."""

SINGLES_MAX: Final = 64
"""Questions for one message each that are asked at once."""

_BATCHES: Final = (2, 11, 0)
"""The first nats-server that answers with several messages."""

_NOT_FOUND: Final = 404
_END: Final = 204


async def fetch(
    connection: Connection, stream: str, subject: str, after: int, bytes_max: int
) -> Sequence[Frame]:
    """The messages of a subject after a sequence, in order and without a hole; at least one.

    None where the replica that has answered has none: it may be behind.

    Raises:
        NobodyError: no replica takes the question; perhaps there is no such stream.
        LogLost: no answer came.
        StoreError: `store.denied`.
    """
    if version_of(connection.version) >= _BATCHES:
        return await _batch(connection, stream, subject, after, bytes_max)
    return await _singles(connection, stream, subject, after, bytes_max)


async def _batch(
    connection: Connection, stream: str, subject: str, after: int, bytes_max: int
) -> Sequence[Frame]:
    page = _Page(subject.encode(), after, bytes_max)
    wanted = {
        "seq": after + 1, "batch": BATCH_MAX, "max_bytes": bytes_max, "next_by_subj": subject,
    }  # fmt: skip
    try:
        last = await connection.ask(_question(stream), msgspec.json.encode(wanted), take=page.take)
    except LogLost:
        if not page.frames:
            raise
    else:
        page.finish(last)
    return page.frames


async def _singles(
    connection: Connection, stream: str, subject: str, after: int, bytes_max: int
) -> Sequence[Frame]:
    page = _Page(subject.encode(), after, bytes_max)
    first = {"seq": after + 1, "next_by_subj": subject}
    found = await connection.ask(_question(stream), msgspec.json.encode(first))
    page.take(found)
    page.finish(found)
    if not page.frames:
        return page.frames
    # The others are taken to be as large.
    sequence, data = page.frames[0]
    count = min(SINGLES_MAX, bytes_max // max(1, len(data))) - 1
    answers = await asyncio.gather(
        *[
            connection.ask(_question(stream), b'{"seq":%d}' % wanted)
            for wanted in range(sequence + 1, sequence + 1 + max(0, count))
        ],
        return_exceptions=True,
    )
    for wanted, answer in enumerate(answers, sequence + 1):
        if isinstance(answer, LogLost | StoreError):
            break
        if isinstance(answer, BaseException):
            raise answer
        if not page.follow(wanted, answer):
            break
    return page.frames


def _question(stream: str) -> bytes:
    return f"{API}DIRECT.GET.{stream}".encode()


class _Page:
    """Messages that were answered.

    Attributes:
        frames: without a hole, and in order.
    """

    def __init__(self, subject: bytes, after: int, bytes_max: int) -> None:
        self.frames: list[Frame] = []
        self._subject = subject
        self._after = after
        self._left = bytes_max

    def take(self, message: Message) -> bool:
        """Take one of several; returns whether more are wanted."""
        if message.status:
            return False
        # Servers of a cluster may lose some on their way to each other.
        previous = self.frames[-1].sequence if self.frames else 0
        said = message.header(b"Nats-Last-Sequence")
        if said is not None and said != b"%d" % previous:
            return False
        # An older server answers with one, and says nothing of others.
        return self._add(message) and said is not None and len(self.frames) < BATCH_MAX

    def finish(self, message: Message) -> None:
        """Look at the last of what was answered.

        Raises:
            LogLost: nothing was, and it does not say that there is nothing.
        """
        if not self.frames and message.status not in (_NOT_FOUND, _END):
            raise LogLost(f"messages are not answered as asked (status {message.status})")

    def follow(self, sequence: int, message: Message) -> bool:
        """Take the answer to a question for one message; returns whether those behind count."""
        if message.status or message.header(b"Nats-Sequence") != b"%d" % sequence:
            # Where it is not there, the replica may be behind.
            return False
        return message.header(b"Nats-Subject") != self._subject or self._add(message)

    def _add(self, message: Message) -> bool:
        digits = message.header(b"Nats-Sequence") or b""
        previous = self.frames[-1].sequence if self.frames else self._after
        if (
            not (digits.isdigit() and len(digits) <= 20)
            or (sequence := int(digits)) <= previous
            or message.header(b"Nats-Subject") != self._subject
            or (self.frames and len(message.data) > self._left)
        ):
            return False
        self.frames.append(Frame(sequence, message.data))
        self._left -= len(message.data)
        return True
