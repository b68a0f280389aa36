"""A client's lasting connection: requests and publications, over WebSockets that come and go.

What is sent goes out in order. A request without an answer is asked again on the next WebSocket,
and so is what had not been handed to the last one. A published message that was handed over just
before a WebSocket broke may be lost: the protocol has no word for having taken it.
"""

import asyncio
from collections import OrderedDict, deque
from itertools import count
from random import uniform
from typing import Final, Protocol

from msgspec.structs import replace

from rillnode.codecs.errors import (
    CodecError,
    HandshakeError,
    RequestError,
    RillnodeError,
    TransportError,
)
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    ErrorResponse,
    PublishRequest,
    RequestId,
    ResendLastRequest,
    ResendResponseNoResend,
    ResendResponseResent,
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.node.streamr.client.handed_over import HandedOver
from rillnode.node.streamr.client.login import Login
from rillnode.node.streamr.client.wire import OpenWire, Wire, refusal_of

logger = event_logger("rillnode.node.streamr.client")

RECONNECT_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
REQUEST_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 30.0

OUTBOX_MESSAGES_MAX: Final = 1_000
"""Messages that wait to be sent; who publishes more waits as well."""

_RECENT_MAX: Final = 10_000
"""Published messages that a late refusal can still be told of."""

_AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"

Asked = SubscribeRequest | UnsubscribeRequest | ResendLastRequest
Answer = (
    SubscribeResponse
    | UnsubscribeResponse
    | ResendResponseResent
    | ResendResponseNoResend
    | ErrorResponse
)


class ConnectionEvents(Protocol):
    """The events of a connection; all calls on the loop's thread."""

    def connection_opened(self) -> None:
        """There is another WebSocket: the server knows of no subscription."""
        ...

    def message_received(self, message: StreamMessage) -> None:
        """A subscription has brought a message."""
        ...

    def subscription_ended(self, stream_id: str, partition: int, error: RequestError) -> None:
        """The server sends no more of a partition: the right to it has ended, say."""
        ...

    def message_refused(self, message: StreamMessage, error: RequestError) -> None:
        """A published message is not accepted."""
        ...

    def connection_failed(self, error: RillnodeError) -> None:
        """The connection is over, and no other one will be made."""
        ...


class Connection:
    """Talks to one server; all calls on the loop's thread.

    Args:
        open_wire: opens a WebSocket.
        login: gives the token that goes with each request.
        events: told of what happens.
        reconnect: open other WebSockets when one is lost; else that ends the connection.

    Attributes:
        handed_over: what may be lost of what was published.
    """

    def __init__(
        self,
        open_wire: OpenWire,
        login: Login,
        events: ConnectionEvents,
        *,
        reconnect: bool = True,
    ) -> None:
        self._open_wire = open_wire
        self._login = login
        self._events = events
        self._reconnect = reconnect
        self.handed_over = HandedOver()
        self._ids = count(1)
        self._outbox: deque[Asked | PublishRequest] = deque()
        self._filled = asyncio.Event()
        self._emptier = asyncio.Event()
        self._asked: dict[RequestId, tuple[Asked, asyncio.Future[Answer]]] = {}
        # The ids of the requests that have made them: the server ends one by an error with its id.
        self._subscriptions: dict[tuple[str, int], RequestId] = {}
        self._recent: OrderedDict[RequestId, PublishRequest] = OrderedDict()
        self._again: set[RequestId] = set()
        self._error: RillnodeError | None = None
        self._running: asyncio.Task[None] | None = None
        self._renewing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Make the first WebSocket.

        Raises:
            RillnodeError: the server is not reached, or refuses.
        """
        await self._login.token()
        wire = await self._open_wire()
        self._running = asyncio.get_running_loop().create_task(self._run(wire))

    async def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Hand over what waits to be sent, as long as there is time, then end."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._outbox:
                    self._emptier.clear()
                    await self._emptier.wait()
        except TimeoutError:
            logger.warning("closed_with_messages_unsent", extra={"messages": len(self._outbox)})
        self._fail(TransportError("client.closed", "the client is closed"))
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, *self._renewing, return_exceptions=True)

    def publish(self, message: StreamMessage) -> None:
        """Send a message, after all that was sent before; only refusals are heard of.

        Raises:
            RillnodeError: the connection is over.
        """
        request_id = self._next_id()
        request = PublishRequest(message=message, request_id=request_id, layout=message.layout)
        self._recent[request.request_id or ""] = request
        if len(self._recent) > _RECENT_MAX:
            self._again.discard(self._recent.popitem(last=False)[0])
        self._send(request)

    async def room(self) -> None:
        """Wait until few enough messages wait to be sent.

        Raises:
            RillnodeError: the connection is over.
        """
        while len(self._outbox) >= OUTBOX_MESSAGES_MAX:
            self._check()
            self._emptier.clear()
            await self._emptier.wait()
        self._check()

    async def subscribe(self, stream_id: str, partition: int) -> None:
        """Have the messages of a stream's partition sent from now on.

        Raises:
            RequestError: the server refuses; the code is the server's.
            TransportError: no answer in time, or the connection is over.
        """
        await self._ask(
            SubscribeRequest(stream_id=stream_id, partition=partition, request_id=self._next_id())
        )

    async def unsubscribe(self, stream_id: str, partition: int) -> None:
        """Have no more of them sent; raises as `subscribe`."""
        await self._ask(
            UnsubscribeRequest(stream_id=stream_id, partition=partition, request_id=self._next_id())
        )

    async def settle(self, stream_id: str, partition: int) -> None:
        """Wait until what was published to a partition is stored, or refused.

        A rillnode answers a resend once everything that came before it on the connection is
        durable, so a short one is asked for.

        Raises:
            RequestError: as `subscribe`; who may not read a stream cannot tell.
            TransportError: the connection was lost meanwhile, and messages perhaps with it.
        """
        request_id = self._next_id()
        await self._ask(
            ResendLastRequest(
                stream_id=stream_id,
                partition=partition,
                number_last=1,
                request_id=request_id,
            )
        )
        self.handed_over.settled(int(request_id), (stream_id, partition))

    # Sending ---------------------------------------------------------------------------------

    def _next_id(self) -> str:
        return str(next(self._ids))

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _send(self, request: Asked | PublishRequest) -> None:
        self._check()
        self._outbox.append(request)
        self._filled.set()

    async def _ask(self, request: Asked) -> None:
        answer = await self._answer(request)
        unknown = isinstance(answer, ErrorResponse) and answer.error_code == _AUTHENTICATION_FAILED
        if unknown and await self._login.token(True) is not None:
            answer = await self._answer(request)
        if isinstance(answer, ErrorResponse):
            raise refusal_of(answer)

    async def _answer(self, request: Asked) -> Answer:
        self._check()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request_id = request.request_id or ""
        self._asked[request_id] = (request, future)
        self._send(request)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await future
        except TimeoutError:
            text = f"the server has not answered in {REQUEST_SECONDS:g} s"
            raise TransportError("request.timeout", text) from None
        finally:
            del self._asked[request_id]

    # The WebSocket ---------------------------------------------------------------------------

    async def _run(self, wire: Wire) -> None:
        try:
            await self._use(wire)
        except Exception as error:
            logger.exception("connection_failed")
            self._fail(TransportError("client.failed", f"the connection failed: {error!r}"))

    async def _use(self, wire: Wire) -> None:
        """Use one WebSocket after the other, until there is none any more."""
        while True:
            self._subscriptions.clear()
            self._events.connection_opened()
            reason = await self._talk(wire)
            if not (self._reconnect and reason.retryable):
                self._fail(reason)
                return
            logger.info("connection_lost", extra={"reason": reason.text})
            self._lose(reason)
            opened = await self._open_again()
            if opened is None:
                return
            wire = opened

    async def _talk(self, wire: Wire) -> RillnodeError:
        """Read and write until the WebSocket is lost; return why it was."""
        loop = asyncio.get_running_loop()
        sides = [loop.create_task(self._read(wire)), loop.create_task(self._write(wire))]
        try:
            done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)
            await wire.close()
        error = next(side for side in sides if side in done).exception()
        if not isinstance(error, RillnodeError):
            assert error is not None, "both sides go on until one fails"
            raise error
        return error

    async def _open_again(self) -> Wire | None:
        attempt = 0
        while True:
            base = RECONNECT_SECONDS[min(attempt, len(RECONNECT_SECONDS) - 1)]
            await asyncio.sleep(base * uniform(0.5, 1.5))
            attempt += 1
            try:
                return await self._open_wire()
            except HandshakeError as error:
                self._fail(error)
                return None
            except TransportError as error:
                logger.debug("not_reached", extra={"code": error.code, "attempt": attempt})

    def _lose(self, reason: RillnodeError) -> None:
        """Ask again what was asked on the WebSocket that is lost, before all that has to wait."""
        self.handed_over.broken()
        waiting = set(map(id, self._outbox))
        unanswered: list[Asked] = []
        for request, future in list(self._asked.values()):
            if isinstance(request, ResendLastRequest):
                if not future.done():
                    future.set_exception(reason)
            elif id(request) not in waiting:
                unanswered.append(request)
        left = [request for request in self._outbox if not isinstance(request, ResendLastRequest)]
        self._outbox = deque((*unanswered, *left))
        if self._outbox:
            self._filled.set()

    async def _write(self, wire: Wire) -> None:
        while True:
            while not self._outbox:
                self._filled.clear()
                await self._filled.wait()
            request = self._outbox[0]
            if not isinstance(request, UnsubscribeRequest):
                token = await self._login.token()
                request = replace(request, session_token=token)
            try:
                await wire.send(request)
            except CodecError as error:
                self._unsent(request, error)
            self._outbox.popleft()
            self._emptier.set()
            if isinstance(request, PublishRequest):
                name = request.message.id
                number = int(request.request_id or 0)
                self.handed_over.add(number, (name.stream_id, name.partition))

    def _unsent(self, request: Asked | PublishRequest, error: CodecError) -> None:
        """Tell that a request has no form in which it could be sent."""
        refusal = ErrorResponse(
            error_code=error.code, error_message=error.text, request_id=request.request_id
        )
        self._received(refusal)

    async def _read(self, wire: Wire) -> None:
        while True:
            self._received(await wire.receive())

    def _received(self, message: ControlMessage) -> None:
        match message:
            case BroadcastMessage(message=broadcast):
                self._events.message_received(broadcast)
            case ErrorResponse(request_id=request_id) if request_id in self._recent:
                self._refused(request_id or "", message)
            case (
                SubscribeResponse(request_id=request_id)
                | UnsubscribeResponse(request_id=request_id)
                | ResendResponseResent(request_id=request_id)
                | ResendResponseNoResend(request_id=request_id)
                | ErrorResponse(request_id=request_id)
            ):
                asked = self._asked.get(request_id or "")
                match message:
                    case SubscribeResponse(stream_id=stream_id, partition=partition):
                        self._subscriptions[stream_id, partition] = request_id or ""
                    case UnsubscribeResponse(stream_id=stream_id, partition=partition):
                        self._subscriptions.pop((stream_id, partition), None)
                    case ErrorResponse() if asked is None and self._ended(message):
                        return
                    case _:
                        pass
                if asked is None:
                    logger.warning("unasked_answer", extra={"answer": type(message).__name__})
                elif not asked[1].done():
                    asked[1].set_result(message)
            case _:
                pass  # what a short resend brings

    def _ended(self, response: ErrorResponse) -> bool:
        """Tell of a subscription that the server ends by an error; False: it ends none."""
        for partition, request_id in self._subscriptions.items():
            if request_id == response.request_id:
                del self._subscriptions[partition]
                self._events.subscription_ended(*partition, refusal_of(response))
                return True
        return False

    def _refused(self, request_id: RequestId, response: ErrorResponse) -> None:
        """Tell of a message that was not accepted, or send it again with another token."""
        request = self._recent.pop(request_id)
        if response.error_code == _AUTHENTICATION_FAILED and request_id not in self._again:
            self._again.add(request_id)
            renewing = asyncio.get_running_loop().create_task(self._renew(request))
            self._renewing.add(renewing)
            renewing.add_done_callback(self._renewing.discard)
            return
        self._again.discard(request_id)
        self._events.message_refused(request.message, refusal_of(response))

    async def _renew(self, request: PublishRequest) -> None:
        try:
            await self._login.token(True)
            self._recent[request.request_id or ""] = request
            self._send(request)
        except RillnodeError as error:
            self._events.message_refused(request.message, RequestError(error.code, error.text))

    def _fail(self, error: RillnodeError) -> None:
        if self._error is not None:
            return
        self._error = error
        for _, future in list(self._asked.values()):
            if not future.done():
                future.set_exception(error)
        self._outbox.clear()
        self._emptier.set()
        self._events.connection_failed(error)
