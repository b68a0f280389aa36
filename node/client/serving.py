"""Serving an address: messages that are sent to it come to this client, and its answers go back."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Final, NamedTuple, Self

from rillnode.actors.apps.messages import ActorReply, Message
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import FRAME_BYTES_MAX, LEASE_SECONDS_MAX
from rillnode.codecs.routing.routes import Address, Route, WireMessage, local
from rillnode.node.client.messages import Messages, failure_of
from rillnode.node.client.subscription import AGAIN_SECONDS, PASSING

logger = event_logger("rillnode.node.client")

CALLS_MAX: Final = 64
LEASE_SECONDS: Final = 10.0
STOP_SECONDS: Final = 10.0

ANSWER_BYTES_MAX: Final = FRAME_BYTES_MAX - 1_024
"""Of one answer; the rest of the largest message is for its routes."""

_SERVICE: Final = b"serve"
_TOKEN_BYTES: Final = 16
_NO_ID: Final = 0
"""Of requests that have no answer, or whose answer comes to an address of its own."""

_PASSING: Final = PASSING | {"node.draining"}
_FAR: Final = frozenset(("peer.unreachable", "peer.busy"))
"""What ends no service that has begun, farther on."""

_BEGIN_SECONDS: Final = 60.0
_RENEW_SECONDS_MIN: Final = 0.1

_FAILED: Final = "Whoever serves this address has failed at this message: its log says why"

_STOPPED: Final = ("call.lost", "Its service has stopped before it was done")


Handler = Callable[[Message], Awaitable[bytes | None] | bytes | None]
"""Handles a message: what it returns is the answer, None is none, and `ActorReply` refuses.

An `async def` runs beside others; a plain function must not block.
"""


class _Given(NamedTuple):
    """A call as it came.

    Attributes:
        link: over which of the client's links, counted.
        route: where its answer goes: its number means nothing to whoever has the address next.
    """

    link: int
    route: Route
    call: native.Call


class Service:
    """An address that a client serves, as `Client.serve` makes it; an async context manager.

    Attributes:
        address: what others send to.
    """

    def __init__(
        self,
        messages: Messages,
        address: str,
        handler: Handler,
        *,
        at: Route,
        group: bool,
        calls_max: int,
        lease_seconds: float,
    ) -> None:
        self.address = address
        self._messages = messages
        self._handler = handler
        self._at = at
        self._group = group
        self._calls_max = calls_max
        self._lease_seconds = lease_seconds
        self._token = messages.entropy(_TOKEN_BYTES)
        self._id = 1
        self._own = messages.attach(self._received, self)
        self._control: Route = ()
        # What came over a link that is gone is not answered any more: its callers were told.
        self._link = 0
        self._waiting: deque[_Given] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()

    async def __aenter__(self) -> Self:
        """Nothing more to do: it serves."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    @property
    def open_calls(self) -> int:
        """Calls that have come and have no answer yet."""
        return len(self._running) + len(self._waiting)

    async def wait(self) -> None:
        """Wait until it has ended: by `stop`, or because the node does not let it go on.

        Raises:
            RequestError: `address.taken`, the lease was over, and another serves the address;
                `serve.revoked`, the right to serve it has ended; `serve.stopped`, it was stopped.
            TransportError: the client is closed, or its link is lost and it makes no other.
        """
        await asyncio.shield(self._over)

    async def stop(self, *, timeout_seconds: float = STOP_SECONDS) -> None:
        """Take no more calls, answer those that are open, and give the address up.

        Args:
            timeout_seconds: after that, what is not answered yet is cancelled: `call.lost`.
        """
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(timeout_seconds))
        await asyncio.shield(self._stopping)

    async def begin(self) -> None:
        """Ask for the address; raises why the node does not give it."""
        error = self._messages.error or self._impossible()
        if error is not None:
            self._end(error)
        else:
            self._serve()
        try:
            async with asyncio.timeout(_BEGIN_SECONDS):
                await asyncio.shield(self._begun)
        except TimeoutError:
            await self.stop(timeout_seconds=0.0)
            text = f"the node has not answered in {_BEGIN_SECONDS:.0f} s"
            if self._at:
                text += "; if it is an Ockam hub, use `Hub(client, at).serve`"
            raise TransportError("request.timeout", text) from None
        except asyncio.CancelledError:
            await self.stop(timeout_seconds=0.0)
            raise

    def _impossible(self) -> RequestError | None:
        """Why no node can be asked for this."""
        if not self.address.isprintable():  # some of that has no UTF-8 form
            return RequestError("address.invalid", f"{self.address!r} is no address")
        if self._calls_max < 1 or not 0 <= self._lease_seconds <= LEASE_SECONDS_MAX:
            text = f"A service has 1 call or more, and a lease of 0 to {LEASE_SECONDS_MAX:,.0f} s"
            return RequestError("serve.limit", text)
        return None

    def on_end(self, call: "Callable[[Service], object]") -> None:
        """Have something called once it has ended."""
        self._over.add_done_callback(lambda _: call(self))

    # What the client's messages call ---------------------------------------------------------

    def link_opened(self) -> None:
        """Ask for the address again."""
        if self._over.done():
            self._messages.detach(self._own)
        elif self._stopping is None:
            self._serve()

    def ended(self, error: RillnodeError) -> None:
        """There will be no further link."""
        self._forget_calls()
        self._end(error if self._stopping is None else None)

    def _received(self, wire: WireMessage) -> None:
        """Take calls, and the node's word on whether the address is this client's."""
        try:
            response = native.decode_response(wire.payload)
        except CodecError as error:
            logger.warning("bad_answer", extra={"code": error.code, "offset": error.offset})
            return
        if response.request_id != self._id:
            return  # of what it was before
        if self._over.done():
            self._give_back(response, wire.return_route)
            return
        if isinstance(response, native.Failure):
            self._failed(failure_of(response))
            return
        self._control = wire.return_route
        if not self._begun.done():
            self._begun.set_result(None)
        if isinstance(response, native.CallsResponse):
            # A node that keeps to what was said sends no more.
            room = max(0, 2 * self._calls_max - self.open_calls)
            route = wire.return_route
            self._waiting += [_Given(self._link, route, call) for call in response.calls[:room]]
            self._run()

    def _give_back(self, response: native.Response, route: Route) -> None:
        """An address has come that nobody waits for any more."""
        self._messages.detach(self._own)
        if isinstance(response, native.DoneResponse):
            self._tell(route, native.StopServingRequest(_NO_ID, self._token))

    def _failed(self, error: RillnodeError) -> None:
        """Serve anew, after a pause, where something of the node's own has failed; else end."""
        self._forget_calls()
        passes = _PASSING | _FAR if self._at and self._begun.done() else _PASSING
        if error.code in passes and self._stopping is None:
            self._id += 1
            self._later(AGAIN_SECONDS, self._serve)
        else:
            self._end(error if self._stopping is None else None)

    def _serve(self) -> None:
        self._forget_calls()
        self._ask()

    def _ask(self) -> None:
        """Ask for the address; farther on nobody tells of lost links: there again and again."""
        request = native.ServeRequest(
            self._id,
            self.address.encode(),
            self._token,
            self._group,
            self._calls_max,
            round(1_000 * self._lease_seconds),
        )
        self._tell((*self._at, local(_SERVICE)), request)
        if self._at:
            self._later(max(_RENEW_SECONDS_MIN, self._lease_seconds / 3), self._ask)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(seconds, call)

    def _tell(self, route: Route, request: native.Request) -> None:
        """Send a request; where there is no link the next one is waited for."""
        with suppress(TransportError):
            self._messages.send(route, native.encode(request), (local(self._own),))

    def _forget_calls(self) -> None:
        """What was open is lost: callers are told by the node."""
        self._link += 1
        self._waiting.clear()

    # Calls -----------------------------------------------------------------------------------

    def _run(self) -> None:
        """Begin with calls, as many as may be open; some may still be at what nobody waits for."""
        while self._waiting and len(self._running) < self._calls_max:
            task = asyncio.get_running_loop().create_task(self._handle(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._handled)

    def _handled(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._run()

    async def _handle(self, given: "_Given") -> None:
        """Have the handler's answer to a call, and send it where its caller still waits."""
        call = given.call
        message = Message(
            payload=call.payload,
            principal=call.principal,
            address=self.address,
            onward_route=_route(call.onward_route),
            return_route=_route(call.return_route),
        )
        self._send(given, await answer_to(self._handler, message, call.call_id))

    def _send(self, given: "_Given", answer: native.AnswerRequest) -> None:
        if given.link == self._link:
            self._tell(given.route, answer)

    # Its end ---------------------------------------------------------------------------------

    async def _stop(self, seconds: float) -> None:
        if self._again is not None:
            self._again.cancel()
        deadline = asyncio.get_running_loop().time() + seconds
        if self._control and not self._over.done():
            request = native.StopServingRequest(_NO_ID, self._token)
            payload, asking = native.encode(request), max(1.0, seconds)
            try:
                await self._messages.ask(self._control, payload, seconds=asking)
            except RillnodeError as error:  # the node has ended it, or is gone
                logger.debug("not_stopped", extra={"code": error.code})
        while self.open_calls and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running, timeout=left, return_when="FIRST_COMPLETED")
        waiting, self._waiting = self._waiting, deque()
        for given in waiting:
            answer = native.AnswerRequest(_NO_ID, given.call.call_id, None, *_STOPPED)
            self._send(given, answer)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._end(None, answered=bool(self._control))

    def _end(self, error: RillnodeError | None, *, answered: bool = True) -> None:
        """It is over; what the node has not answered yet is given back once it does."""
        if answered:
            self._messages.detach(self._own)
        if self._again is not None:
            self._again.cancel()
        for future in (self._begun, self._over):
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # perhaps nobody looks


async def answer_to(
    handler: Handler, message: Message, call_id: int = _NO_ID
) -> native.AnswerRequest:
    """What a handler makes of a message: an answer, none, or why there is none."""
    answer = native.AnswerRequest(_NO_ID, call_id, None)
    try:
        result: object = handler(message)
        if isawaitable(result):
            result = await result
    except ActorReply as refusal:
        answer.code, answer.text = refusal.code, refusal.text
    except asyncio.CancelledError:
        task = asyncio.current_task()
        stopped = task is not None and task.cancelling()
        answer.code, answer.text = _STOPPED if stopped else ("actor.failed", _FAILED)
    except Exception:  # it is anybody's code, and its caller is to have an outcome
        logger.warning("handler_failed", exc_info=True, extra={"address": message.address})
        answer.code, answer.text = "actor.failed", _FAILED
    else:
        _put(answer, result, message.address)
    return answer


def _put(answer: native.AnswerRequest, result: object, address: str) -> None:
    """Make what a handler has returned its answer."""
    if result is None:
        return
    if not isinstance(result, bytes | bytearray):
        kind = type(result).__name__
        logger.warning("handler_failed", extra={"address": address, "returned": kind})
        answer.code, answer.text = "actor.failed", _FAILED
    elif len(result) > ANSWER_BYTES_MAX:
        text = f"The answer has {len(result):,} bytes, at most {ANSWER_BYTES_MAX:,} are sent"
        answer.code, answer.text = "message.size", text
    else:
        answer.payload = bytes(result)


def _route(hops: list[native.Hop]) -> Route:
    return tuple(Address(hop.type, hop.value) for hop in hops)
