"""Publishing to JetStream with as little as possible between a message and its acknowledgement.

One subscription takes all answers, and each sets the future that its publisher awaits: nats-py's
own way gives every message a task, three futures and as many turns of the loop, which is most of
what a single message takes.
"""

import asyncio
from itertools import count
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError, NoStreamResponseError

_NOBODY: Final = "503"
"""The status of an answer by the server itself: no stream takes what was published."""


class _Fault(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Acknowledgement(msgspec.Struct):
    seq: int = 0
    error: _Fault | None = None


_decoder = msgspec.json.Decoder(_Acknowledgement)


class Publisher:
    """Publishes over one connection, on its loop.

    Args:
        client: connected.
        seconds: an answer that takes longer is taken for lost.
    """

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._inbox = client.new_inbox() + "."
        self._numbers = count()
        self._asked: dict[str, asyncio.Future[Msg]] = {}

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
        loop = asyncio.get_running_loop()
        token = str(next(self._numbers))
        answered = self._asked[token] = loop.create_future()
        timer = loop.call_later(self._seconds, _expire, answered)
        try:
            await self._client.publish(name, data, reply=self._inbox + token, headers=headers)
            answer = await answered
        finally:
            timer.cancel()
            del self._asked[token]
        return _sequence_of(answer)

    def end(self, error: Exception) -> None:
        """No answers come any more: whoever waits gets an error."""
        for answered in self._asked.values():
            if not answered.done():
                answered.set_exception(error)

    async def _take(self, answer: Msg) -> None:
        answered = self._asked.get(answer.subject[len(self._inbox) :])
        if answered is not None and not answered.done():
            answered.set_result(answer)


def _expire(answered: asyncio.Future[Msg]) -> None:
    if not answered.done():
        answered.set_exception(TimeoutError("no acknowledgement came in time"))


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
