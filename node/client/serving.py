"""Serving an address: messages that are sent to it come to this client, and its answers go back."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Final, Self

from rillnode.actors.apps.messages import ActorReply, Message
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import Address, Route
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import AGAIN_SECONDS, PASSING

logger = logging.getLogger("rillnode.node.client")

CALLS_MAX: Final = 64
LEASE_SECONDS: Final = 10.0
STOP_SECONDS: Final = 10.0

ANSWER_BYTES_MAX: Final = FRAME_BYTES_MAX - 1_024
"""Of one answer; the rest of the largest message is for its routes."""

_SERVICE: Final = b"serve"
_TOKEN_BYTES: Final = 16
_AGAIN: Final = PASSING | {"node.draining"}

_FAILED: Final = "Whoever serves this address has failed at this message: its log says why"

_STOPPED: Final = ("call.lost", "Its service has stopped before it was done")


Handler = Callable[[Message], Awaitable[bytes | None] | bytes | None]
"""Handles a message: what it returns is the answer, None is none, and `ActorReply` refuses.

An `async def` runs beside others; a plain function must not block.
"""


class Service:
    """An address that a client serves, as `Client.serve` makes it; an async context manager.

    Attributes:
        address: what others send to.
    """

    def __init__(
        self,
        session: Session,
        address: str,
        handler: Handler,
        *,
        group: bool,
        calls_max: int,
        lease_seconds: float,
    ) -> None:
        self.address = address
        self._session = session
        self._handler = handler
        self._group = group
        self._calls_max = calls_max
        self._lease_milliseconds = round(1_000 * lease_seconds)
        self._token = session.messages.entropy(_TOKEN_BYTES)
        self._id = session.next_id()
        self._control: Route = ()
        # What came over a link that is gone is not answered any more: its callers were told.
        self._link = 0
        self._waiting: deque[tuple[int, native.Call]] = deque()
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
                `serve.revoked`, the right to serve it has ended.
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
        self._session.subscribe(self._id, self)
        try:
            await asyncio.shield(self._begun)
        except asyncio.CancelledError:
            await self.stop(timeout_seconds=0.0)
            raise

    def on_end(self, call: "Callable[[Service], object]") -> None:
        """Have something called once it has ended."""
        self._over.add_done_callback(lambda _: call(self))

    # What the session calls ------------------------------------------------------------------

    def resume(self) -> tuple[bytes, native.Request] | None:
        """Ask for the address again, over a new link."""
        self._link += 1
        self._waiting.clear()
        if self._stopping is not None:
            return None
        request = native.ServeRequest(
            self._id,
            self.address.encode(),
            self._token,
            self._group,
            self._calls_max,
            self._lease_milliseconds,
        )
        return _SERVICE, request

    def received(self, response: native.Response, route: Route) -> None:
        """Take calls, and the word that the address is this client's."""
        self._control = route
        if not self._begun.done():
            self._begun.set_result(None)
        if isinstance(response, native.CallsResponse):
            self._waiting += [(self._link, call) for call in response.calls]
            self._run()

    def failed(self, error: RillnodeError) -> None:
        """Serve anew, after a pause, where something of the node's own has failed; else end."""
        self._link += 1
        self._waiting.clear()
        self._control = ()
        if error.code in _AGAIN and self._stopping is None:
            # What was on its way to the service that is over may be answered, too.
            self._session.unanswered += 2 + self._calls_max
            self._id = self._session.next_id()
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(AGAIN_SECONDS, self._session.subscribe, self._id, self)
        else:
            self._end(error if self._stopping is None else None)

    # Calls -----------------------------------------------------------------------------------

    def _run(self) -> None:
        """Begin with calls, as many as may be open; some may still be at what nobody waits for."""
        while self._waiting and len(self._running) < self._calls_max:
            task = asyncio.get_running_loop().create_task(self._handle(*self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._handled)

    def _handled(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._run()

    async def _handle(self, link: int, call: native.Call) -> None:
        """Have the handler's answer to a call, and send it where its caller still waits."""
        answer = native.AnswerRequest(self._id, call.call_id, None)
        try:
            result: object = self._handler(
                Message(
                    payload=call.payload,
                    principal=call.principal,
                    address=self.address,
                    onward_route=_route(call.onward_route),
                    return_route=_route(call.return_route),
                )
            )
            if isawaitable(result):
                result = await result
        except ActorReply as refusal:
            answer.code, answer.text = refusal.code, refusal.text
        except asyncio.CancelledError:
            answer.code, answer.text = _STOPPED
        except Exception:  # it is anybody's code, and its caller is to have an outcome
            logger.warning("handler_failed", exc_info=True, extra={"address": self.address})
            answer.code, answer.text = "actor.failed", _FAILED
        else:
            self._put(answer, result)
        self._send(link, answer)

    def _send(self, link: int, answer: native.AnswerRequest) -> None:
        if link == self._link:
            self._session.tell(self._control, answer)

    def _put(self, answer: native.AnswerRequest, result: object) -> None:
        """Make what a handler has returned its answer."""
        if result is None:
            return
        if not isinstance(result, bytes | bytearray | memoryview):
            kind = type(result).__name__
            logger.warning("handler_failed", extra={"address": self.address, "returned": kind})
            answer.code, answer.text = "actor.failed", _FAILED
        elif len(result) > ANSWER_BYTES_MAX:
            text = f"The answer has {len(result):,} bytes, at most {ANSWER_BYTES_MAX:,} are sent"
            answer.code, answer.text = "message.size", text
        else:
            answer.payload = bytes(result)

    # Its end ---------------------------------------------------------------------------------

    async def _stop(self, seconds: float) -> None:
        if self._again is not None:
            self._again.cancel()
        deadline = asyncio.get_running_loop().time() + seconds
        if self._control and self._session.connected and not self._over.done():
            request = native.StopServingRequest(self._session.next_id(), self._id)
            address = self._control[0].value
            try:
                await self._session.request(address, request, seconds=max(1.0, seconds))
            except RillnodeError as error:  # the node has ended it, or is gone
                logger.debug("not_stopped", extra={"code": error.code})
        while self.open_calls and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running, timeout=left, return_when="FIRST_COMPLETED")
        waiting, self._waiting = self._waiting, deque()
        for link, call in waiting:
            answer = native.AnswerRequest(self._id, call.call_id, None, *_STOPPED)
            self._send(link, answer)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._session.drop(self._id)
        self._end(None)

    def _end(self, error: RillnodeError | None) -> None:
        for future in (self._begun, self._over):
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # perhaps nobody looks


def _route(hops: list[native.Hop]) -> Route:
    return tuple(Address(hop.type, hop.value) for hop in hops)
