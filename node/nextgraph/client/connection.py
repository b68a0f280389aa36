"""Requests and their answers over one wire, and what the broker forwards unasked."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.nextgraph.client import (
    STORED_BEFORE,
    ClientEvent,
    ClientMessage,
    InboxReceive,
)
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.requests import ClientRequest, RequestContent
from rillnode.codecs.nextgraph.responses import ClientResponse, EmptyResponse, ResponseContent
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OverlayId
from rillnode.node.nextgraph.client.wire import Wire

logger = event_logger("rillnode.node.nextgraph.client")

_ENDS: Final = (ResultCode.END_OF_STREAM, ResultCode.EMPTY_STREAM)

Kind = TypeVar("Kind")
Answers = asyncio.Queue[tuple[ClientResponse, bytes] | RillnodeError]


class Connection:
    """Numbers requests, and hands each answer to who has asked.

    The broker answers in the order of the requests. Answers are kept until they are taken.
    """

    def __init__(
        self,
        wire: Wire,
        forwarded: Callable[[OverlayId, Event], None],
        lettered: Callable[[InboxReceive], None],
        ended: Callable[[RillnodeError], None],
    ) -> None:
        self._wire = wire
        self._forwarded = forwarded
        self._lettered = lettered
        self._ended = ended
        self._last_id = 0
        self._sending = asyncio.Lock()
        self._asked: dict[int, Answers] = {}
        self._error: RillnodeError | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def ask(self, overlay: OverlayId, content: RequestContent) -> ResponseContent:
        """Ask what has one answer.

        Raises:
            RequestError: the broker refuses; the code is `nextgraph.` and the result's name.
            CodecError: the request cannot be expressed, or is too long.
            TransportError: the connection is over; what was asked may have been done.
            NextGraphError: it is over since the broker broke the protocol.
        """
        answer, _ = await self._answer(overlay, content)
        return answer

    async def publish(self, overlay: OverlayId, event: Event) -> bool:
        """Publish an event; return whether its commit is new there; raises as `ask`."""
        answer, padding = await self._answer(overlay, event)
        expected(answer, EmptyResponse)
        return padding != STORED_BEFORE

    async def _answer(
        self, overlay: OverlayId, content: RequestContent
    ) -> tuple[ResponseContent, bytes]:
        number, answers = await self._send(overlay, content)
        try:
            answer, padding = await self._next(answers)
        finally:
            self._asked.pop(number, None)
        if answer.result != ResultCode.OK:
            raise refusal(answer.result)
        return answer.content, padding

    async def stream(
        self, overlay: OverlayId, content: RequestContent
    ) -> AsyncGenerator[ResponseContent]:
        """Ask what has any number of answers; raises as `ask`."""
        number, answers = await self._send(overlay, content)
        try:
            while True:
                answer, _ = await self._next(answers)
                if answer.result in _ENDS:
                    break
                if answer.result != ResultCode.PARTIAL_CONTENT:
                    raise refusal(answer.result)
                yield answer.content
        finally:
            self._asked.pop(number, None)

    async def tell(self, overlay: OverlayId, content: ClientEvent) -> None:
        """Say what has no answer; raises as `ask`."""
        async with self._sending:
            if self._error is not None:
                raise self._error
            await self._wire.send(ClientMessage(overlay, content))

    async def close(self) -> None:
        """End the connection, and whatever waits for it."""
        self._end(TransportError("link.closed", "the client is closed"))
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._wire.close()

    async def _send(self, overlay: OverlayId, content: RequestContent) -> tuple[int, Answers]:
        # Frames must be sealed in the order that they are sent.
        async with self._sending:
            if self._error is not None:
                raise self._error
            self._last_id += 1
            number = self._last_id
            answers = self._asked[number] = asyncio.Queue()
            try:
                await self._wire.send(ClientMessage(overlay, ClientRequest(number, content)))
            except BaseException:
                del self._asked[number]
                raise
        return number, answers

    async def _next(self, answers: Answers) -> tuple[ClientResponse, bytes]:
        answer = await answers.get()
        if isinstance(answer, RillnodeError):
            raise answer
        return answer

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._wire.receive())
        except RillnodeError as error:
            self._end(error)
        except Exception as error:
            logger.exception("connection_failed")
            self._end(TransportError("client.failed", f"the connection failed: {error!r}"))
        await self._wire.close()

    def _take(self, message: ClientMessage) -> None:
        match message.content:
            case ClientResponse(id=number) as answer:
                # Who has asked may have gone meanwhile.
                if (answers := self._asked.get(number)) is not None:
                    answers.put_nowait((answer, message.padding))
            case Event() as event:
                self._forwarded(message.overlay, event)
            case InboxReceive() as letter:
                self._lettered(letter)
            case other:
                logger.info("message_dropped", extra={"kind": type(other).__name__})

    def _end(self, error: RillnodeError) -> None:
        if self._error is None:
            self._error = error
            for answers in self._asked.values():
                answers.put_nowait(error)
            self._ended(error)


def expected(answer: ResponseContent, kind: type[Kind]) -> Kind:
    """Narrow an answer to what the request must have.

    Raises:
        CodecError: `nextgraph.answer`, the broker has answered something else.
    """
    if not isinstance(answer, kind):
        raise unexpected(answer)
    return answer


def unexpected(answer: ResponseContent) -> CodecError:
    """What an answer is that does not belong to its request."""
    name = "nothing" if isinstance(answer, EmptyResponse) else type(answer).__name__
    return CodecError("nextgraph.answer", f"the broker has answered {name}")


def refusal(result: int) -> RequestError:
    """What the application is told of an answer's result."""
    try:
        name = ResultCode(result).name.lower()
    except ValueError:
        name = f"result_{result}"
    return RequestError(f"nextgraph.{name}", f"the broker answers {result}: {name}")
