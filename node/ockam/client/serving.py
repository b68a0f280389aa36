"""Serves what comes in Ockam's own messages: by an alias at a hub, or from the end of a channel.

Ockam's workers are answered along the return route, and told nothing else: their protocol has no
word for a refusal. What is refused, fails or comes while too much is open is logged and counted.
"""

import asyncio
from typing import Final, Self

from rillnode.actors.apps.messages import Message
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import LEASE_SECONDS_MAX, NAME_BYTES_MAX
from rillnode.codecs.ockam.hub import TEXT
from rillnode.codecs.routing.routes import Route, WireMessage, local
from rillnode.node.client.messages import Messages
from rillnode.node.client.serving import STOP_SECONDS, Handler, answer_to

logger = event_logger("rillnode.node.ockam.client.serving")

CALLS_LIMIT: Final = 4_096
CALLS_BYTES_MAX: Final = 16_777_216
"""Payload bytes of what is open, beyond the first call. Own choice: four of the largest."""

_TOKEN_BYTES: Final = 16
_CHECK_SECONDS_MIN: Final = 0.1


class PlainService:
    """An address of this end, at which Ockam's messages are answered; a context manager.

    Made by `SecureChannel.serve`.

    Attributes:
        address: what the messages come to.
        dropped: messages that came while `calls_max` were open.
    """

    def __init__(
        self,
        messages: Messages,
        address: str | None,
        handler: Handler,
        *,
        principal: str,
        calls_max: int,
    ) -> None:
        if messages.error is not None:
            raise messages.error
        if not 1 <= calls_max <= CALLS_LIMIT:
            raise RequestError("serve.limit", f"A service has 1 to {CALLS_LIMIT:,} open calls")
        self.dropped = 0
        self._messages = messages
        self._handler = handler
        self._principal = principal
        self._calls_max = calls_max
        self._running: set[asyncio.Task[None]] = set()
        self._open_bytes = 0
        self._full = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        name = None if address is None else _named(address)
        self._own = messages.attach(self._received, self, address=name)
        self.address = self._own.decode()

    async def __aenter__(self) -> Self:
        """Nothing more to do: it serves."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    @property
    def open_calls(self) -> int:
        """Calls that have come and are not answered yet."""
        return len(self._running)

    async def wait(self) -> None:
        """Wait until it has ended, by `stop`; raises why the client or the channel has ended."""
        await asyncio.shield(self._over)

    async def stop(self, *, timeout_seconds: float = STOP_SECONDS) -> None:
        """Take no more calls, and answer those that are open; cancel them after a time."""
        self._messages.detach(self._own)
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_seconds)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if not self._over.done():
            self._over.set_result(None)

    # What the client's messages call ---------------------------------------------------------

    def link_opened(self) -> None:
        """Nothing leads here from the link before; who sends anew finds the same address."""

    def ended(self, error: RillnodeError) -> None:
        """Nothing comes any more."""
        if not self._over.done():
            self._over.set_exception(error)
            self._over.exception()  # perhaps nobody looks

    def _received(self, wire: WireMessage) -> None:
        size = len(wire.payload)
        large = self._running and self._open_bytes + size > CALLS_BYTES_MAX
        if large or len(self._running) >= self._calls_max:
            self.dropped += 1
            if not self._full:  # once until one is done, not for each
                self._full = True
                logger.warning("service_busy", extra={"address": self.address})
            return
        self._open_bytes += size
        task = asyncio.get_running_loop().create_task(self._handle(wire))
        self._running.add(task)
        task.add_done_callback(lambda done: self._handled(done, size))

    def _handled(self, task: "asyncio.Task[None]", size: int) -> None:
        self._running.discard(task)
        self._open_bytes -= size
        self._full = False

    async def _handle(self, wire: WireMessage) -> None:
        message = Message(
            payload=wire.payload,
            principal=self._principal,
            address=self.address,
            onward_route=wire.onward_route[1:],
            return_route=wire.return_route,
        )
        answer = await answer_to(self._handler, message)
        if answer.code:
            logger.info("call_refused", extra={"address": self.address, "code": answer.code})
        elif answer.payload is not None and wire.return_route:
            try:
                self._messages.send(wire.return_route, answer.payload, (local(self._own),))
            except RillnodeError as error:  # there is no link, or it takes no message so large
                logger.info("not_answered", extra={"address": self.address, "code": error.code})


class HubService(PlainService):
    """An alias at a hub, and what comes by it; made by `Hub.serve`.

    The hub forgets the alias with the connection, or when it restarts. A message to itself by way
    of the alias tells whether it is there still; where none comes back it is asked for again.

    Attributes:
        address: the alias, as others at the hub send to it. One with a random name is another one
            after it was lost.
        route: leads there, from this client.
    """

    def __init__(
        self,
        messages: Messages,
        hub: Route,
        name: str | None,
        handler: Handler,
        *,
        calls_max: int,
        lease_seconds: float,
    ) -> None:
        if not 0 < lease_seconds <= LEASE_SECONDS_MAX:
            text = f"A lease has more than 0 and at most {LEASE_SECONDS_MAX:,.0f} s"
            raise RequestError("serve.limit", text)
        if name is not None:
            _named(name)
        super().__init__(messages, None, handler, principal="anonymous", calls_max=calls_max)
        self.address = ""
        self.route: Route = ()
        self._name = name
        self._service = (*hub, local("forwarding" if name is None else "static_forwarding"))
        self._check_seconds = max(_CHECK_SECONDS_MIN, lease_seconds / 3)
        # Nobody who calls can know it, so that no call is taken for what this end sends to itself.
        self._token = messages.entropy(_TOKEN_BYTES)
        self._wanted = self._token if name is None else TEXT.encode(name)
        self._registering = False
        self._back = False
        self._again: asyncio.TimerHandle | None = None
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def begin(self, seconds: float) -> None:
        """Ask for the alias; raises why the hub does not give it."""
        self._register()
        try:
            async with asyncio.timeout(seconds):
                await self._begun
        except TimeoutError:
            await self.stop(timeout_seconds=0.0)
            text = f"the hub has given no alias in {seconds:g} s: has it such a service?"
            raise ActorError("hub.timeout", text) from None
        except (asyncio.CancelledError, RillnodeError):
            await self.stop(timeout_seconds=0.0)
            raise

    async def stop(self, *, timeout_seconds: float = STOP_SECONDS) -> None:
        """Take no more calls, and answer those that are open; cancel them after a time.

        Ockam has no word that gives an alias up: the hub has it until the connection ends.
        """
        if self._again is not None:
            self._again.cancel()
        await super().stop(timeout_seconds=timeout_seconds)

    def link_opened(self) -> None:
        """Ask for the alias again: the one there was leads over the link before."""
        self._register()

    def ended(self, error: RillnodeError) -> None:
        """Nothing comes any more."""
        if self._again is not None:
            self._again.cancel()
        if not self._begun.done():
            self._begun.set_exception(error)
        super().ended(error)

    def _received(self, wire: WireMessage) -> None:
        if self._is_registered(wire):
            self._registering = False
            self.route = wire.return_route
            self.address = wire.return_route[-1].value.decode(errors="replace")
            self._back = True
            if not self._begun.done():
                self._begun.set_result(None)
        elif wire.payload == self._token:
            self._back = True
        elif not self._refused(wire):
            super()._received(wire)

    def _is_registered(self, wire: WireMessage) -> bool:
        """Whether this is the hub's answer to the wish for an alias."""
        if not (self._registering and wire.return_route and wire.payload == self._wanted):
            return False
        # Hubs choose what comes before the name.
        alias = wire.return_route[-1].value
        return self._name is None or alias.endswith(b"_" + self._name.encode())

    def _refused(self, wire: WireMessage) -> bool:
        """Whether a node on the way says that the hub is not there."""
        if not native.is_native(wire.payload):
            return False
        try:
            response = native.decode_response(wire.payload)
        except CodecError:
            return False
        if not isinstance(response, native.Failure):
            return False
        failure = native.failure_of(response)
        logger.info("hub_not_reached", extra={"code": failure.code})
        if not self._begun.done():
            self._begun.set_exception(failure)
        return True

    def _register(self) -> None:
        self._registering = True
        self._send(self._service, self._wanted)
        self._later()

    def _check(self) -> None:
        """Ask for the alias anew where nothing has come back by it, else send the next by it."""
        if not self._back:
            self._register()
            return
        self._back = False
        self._send(self.route, self._token)
        self._later()

    def _later(self) -> None:
        if self._again is not None:
            self._again.cancel()
        loop = asyncio.get_running_loop()
        self._again = loop.call_later(self._check_seconds, self._check)

    def _send(self, route: Route, payload: bytes) -> None:
        try:
            self._messages.send(route, payload, (local(self._own),))
        except RillnodeError as error:  # there is no link now: the next one is told of
            logger.debug("not_sent", extra={"code": error.code})


def _named(name: str) -> bytes:
    """A name as an address.

    Raises:
        RequestError: `address.invalid`, it cannot be one.
    """
    if not name.isprintable() or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise RequestError("address.invalid", f"{name!r} is no address")
    return name.encode()
