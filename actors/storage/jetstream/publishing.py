"""Asking JetStream with as little as possible between a message and its answer.

One subscription takes all answers, and each sets the future that its publisher awaits: nats-py's
own way gives every message a task, three futures and as many turns of the loop, which is most of
what a single message takes. So are messages published, and read.
"""

import asyncio
from itertools import count as numbers
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError, NoStreamResponseError

_NOBODY: Final = "503"
"""The status of an answer by the server itself: no stream takes what was sent."""

_ABSENT: Final = "404"
"""The status of an answer by a stream: it has no such message."""


class _Fault(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Acknowledgement(msgspec.Struct):
    seq: int = 0
    error: _Fault | None = None


_decoder = msgspec.json.Decoder(_Acknowledgement)


class Publisher:
    """Publishes and reads messages over one connection, on its loop.

    Args:
        client: connected.
        seconds: an answer that takes longer is taken for lost.
    """

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._inbox = client.new_inbox() + "."
        self._numbers = numbers()
        # By name of the answer, until when it is waited for, and what it sets; oldest first.
        self._asked: dict[str, tuple[float, asyncio.Future[Msg]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """Take answers from now on.

        Raises:
            nats.errors.Error: the connection was lost.
        """
        await self._client.subscribe(  # pyright: ignore[reportUnknownMemberType]
            self._inbox + "*", cb=self._take
        )

    async def publish(self, name: str, data: bytes, headers: dict[str, str]) -> int:
        """Add a message to the stream of a subject; returns its sequence there.

        Raises:
            APIError: JetStream refuses it; it is not stored.
            TimeoutError, nats.errors.Error: it is not known whether it is stored.
        """
        token, answered = self._ask()
        try:
            await self._client.publish(name, data, reply=self._inbox + token, headers=headers)
        except BaseException:
            self._forget(token, answered)
            raise
        return _sequence_of(await answered)

    async def read(self, name: str, first: int, count: int) -> list[bytes | None]:
        """Messages of a stream from a sequence on, each as some replica has it.

        None where that replica has no such message.

        Raises:
            APIError: JetStream refuses one.
            TimeoutError, nats.errors.Error: some answer did not come.
        """
        subject, sequences = f"$JS.API.DIRECT.GET.{name}", range(first, first + count)
        asked = [self._ask() for _ in sequences]
        try:
            for (token, _), sequence in zip(asked, sequences, strict=True):
                wanted = b'{"seq":%d}' % sequence
                await self._client.publish(subject, wanted, reply=self._inbox + token)
            both = zip(asked, sequences, strict=True)
            return [_data_of(await answered, sequence) for (_, answered), sequence in both]
        finally:
            for token, answered in asked:
                self._forget(token, answered)

    def end(self, error: Exception) -> None:
        """No answers come any more: whoever waits gets an error."""
        asked, self._asked = self._asked, {}
        for _, answered in asked.values():
            if not answered.done():
                answered.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> tuple[str, asyncio.Future[Msg]]:
        """The name for one answer, and what it sets: an error where it takes too long."""
        loop = asyncio.get_running_loop()
        token, answered = str(next(self._numbers)), loop.create_future()
        until = loop.time() + self._seconds
        self._asked[token] = until, answered
        # All wait for as long, so one timer serves them: it is that of the oldest, or earlier.
        if self._timer is None:
            self._timer = loop.call_at(until, self._expire)
        return token, answered

    def _forget(self, token: str, answered: asyncio.Future[Msg]) -> None:
        """Nobody waits for this answer any more."""
        self._asked.pop(token, None)
        if answered.done() and not answered.cancelled():
            answered.exception()

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._asked:
            token, (until, answered) = next(iter(self._asked.items()))
            if until > now:
                self._timer = loop.call_at(until, self._expire)
                return
            del self._asked[token]
            if not answered.done():
                answered.set_exception(TimeoutError("no answer came in time"))

    async def _take(self, answer: Msg) -> None:
        _, answered = self._asked.pop(answer.subject[len(self._inbox) :], _NOTHING)
        if answered is not None and not answered.done():
            answered.set_result(answer)


_NOTHING: Final = (0.0, None)


def _data_of(answer: Msg, sequence: int) -> bytes | None:
    headers = answer.headers or {}
    if headers.get("Nats-Sequence") == str(sequence):
        return answer.data
    status = headers.get("Status")
    if status == _ABSENT:
        return None
    if status == _NOBODY:
        raise NoStreamResponseError
    raise APIError(description=f"{status} {headers.get('Description')}")


def _sequence_of(answer: Msg) -> int:
    if answer.headers and answer.headers.get("Status") == _NOBODY:
        raise NoStreamResponseError
    try:
        acknowledgement = _decoder.decode(answer.data)
    except msgspec.MsgspecError as error:
        raise NoStreamResponseError(f"the acknowledgement cannot be read ({error})") from error
    fault = acknowledgement.error
    if fault is not None:
        # Raises the one of its children that fits.
        APIError.from_error(msgspec.to_builtins(fault))
    if acknowledgement.seq < 1:
        raise NoStreamResponseError("the acknowledgement has no sequence")
    return acknowledgement.seq
