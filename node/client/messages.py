"""Sends messages along routes to any worker, on a client's node or behind it."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from rillnode.actors.apps.messages import Answer as Answer
from rillnode.actors.ports import Entropy
from rillnode.codecs import arguments, native
from rillnode.codecs.errors import ActorError, CodecError, RequestError, RillnodeError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.native import failure_of as failure_of
from rillnode.codecs.routing.routes import Route, WireMessage, encode_message, local, parse_route

ANSWER_SECONDS: Final = 10.0

OnMessage = Callable[[WireMessage], None]
"""Takes a message that came to a local address of the client."""


class Keeper(Protocol):
    """A holder of a local address for longer than one question."""

    def link_opened(self) -> None:
        """There is another link: nobody knows a way over the one before any more."""
        ...

    def ended(self, error: RillnodeError) -> None:
        """Nothing comes to the address any more."""
        ...


@dataclass(slots=True)
class _Asked:
    frame: bytes
    answer: "asyncio.Future[WireMessage]"


class Messages:
    """The messages of one session and the local addresses that answers come to.

    Args:
        send: sends a frame; raises when the session has ended, or needs a link and has none.
        settled: told when no question is open any more.
        entropy: source of random bytes.

    Attributes:
        entropy: what it was given.
        error: why the session has ended, once it has.
    """

    def __init__(
        self,
        *,
        send: Callable[[bytes, bool], None],
        settled: Callable[[], None],
        entropy: Entropy = os.urandom,
    ) -> None:
        self.entropy = entropy
        self.error: RillnodeError | None = None
        self._send = send
        self._settled = settled
        self._receivers: dict[bytes, OnMessage] = {}
        self._asked: dict[bytes, _Asked] = {}
        self._keepers: dict[bytes, Keeper] = {}

    def attach(
        self, on_message: OnMessage, keeper: Keeper | None = None, *, address: bytes | None = None
    ) -> bytes:
        """Let messages come to a local address, until `detach`; return the address.

        It is the last hop of a return route: the node puts its end of the link before it.

        Args:
            on_message: takes what comes.
            keeper: is told of new links, and when the session ends before.
            address: one that others know; None: a new one, which nobody can guess.

        Raises:
            RequestError: `address.taken`, it is attached already.
        """
        if address is None:
            address = fresh_address(self.entropy)
        elif address in self._receivers:
            raise RequestError("address.taken", f"this end serves {address.decode()!r} already")
        self._receivers[address] = on_message
        if keeper is not None:
            self._keepers[address] = keeper
        return address

    def detach(self, address: bytes) -> None:
        """Forget a local address; what still comes to it is dropped."""
        self._receivers.pop(address, None)
        self._keepers.pop(address, None)

    def send(self, route: Route, payload: bytes, return_route: Route = ()) -> None:
        """Send a message; nothing tells whether it arrives.

        Raises:
            RequestError: it is too large, or so is a route.
            TransportError: there is no link now, or the session has ended.
        """
        self._send(_frame(route, return_route, payload), True)

    async def ask(
        self,
        route: Route,
        payload: bytes,
        *,
        seconds: float,
        accept: Callable[[WireMessage], bool] = lambda wire: True,
    ) -> WireMessage:
        """Send a message and wait for the first that comes back, or the first accepted.

        Args:
            route: where it goes.
            payload: handed on as it is.
            seconds: how long what is waited for may take.
            accept: sees what comes until it says that this was waited for; it must not raise.

        Raises:
            RequestError: a node on the way could not hand it on, and says so; or it is too large.
            ActorError: `message.timeout`, nothing has come back in time.
            TransportError: the session has ended.
        """
        answer: asyncio.Future[WireMessage] = asyncio.get_running_loop().create_future()

        def received(wire: WireMessage) -> None:
            if not answer.done() and accept(wire):
                answer.set_result(wire)

        address = self.attach(received)
        try:
            frame = _frame(route, (local(address),), payload)
            self._asked[address] = _Asked(frame, answer)
            self._send(frame, False)
            async with asyncio.timeout(seconds):
                wire = await answer
        except TimeoutError:
            raise ActorError("message.timeout", f"nothing has come back in {seconds:g} s") from None
        finally:
            self.detach(address)
            self._asked.pop(address, None)
            if not self._asked:
                self._settled()
        if native.is_native(wire.payload):
            _raise_failure(wire.payload)
        return wire

    # What the session calls.

    def __bool__(self) -> bool:
        return bool(self._asked)

    def unanswered(self) -> list[bytes]:
        """The frames to send again over a new link."""
        return [asked.frame for asked in self._asked.values()]

    def link_opened(self) -> None:
        """Tell whoever keeps an address that there is another link."""
        for keeper in tuple(self._keepers.values()):
            keeper.link_opened()

    def received(self, wire: WireMessage) -> None:
        """Hand a message to whoever has attached its address."""
        on_message = self._receivers.get(wire.onward_route[0].value) if wire.onward_route else None
        if on_message is not None:
            on_message(wire)

    def fail(self, error: RillnodeError) -> None:
        """The session has ended: so have its questions, and nothing comes to it any more."""
        self.error = error
        asked, self._asked = self._asked, {}
        keepers, self._keepers = self._keepers, {}
        for one in asked.values():
            if not one.answer.done():
                one.answer.set_exception(error)
        for keeper in keepers.values():
            keeper.ended(error)


def as_route(route: Route | str, name: str = "route") -> Route:
    """A route, or what its text says.

    Args:
        route: either.
        name: of the argument.

    Raises:
        ArgumentError: it is neither.
        CodecError: the text is no route.
    """
    if isinstance(route, str):
        return parse_route(arguments.text(name, route))
    arguments.addresses(name, route)
    return route


def as_way(route: Route | str) -> Route:
    """A route that leads somewhere, or what its text says.

    Raises:
        RequestError: `message.route`, it has no address; else as `as_route`.
    """
    way = as_route(route)
    if not way:
        raise RequestError("message.route", "a route has one address at least")
    return way


def fresh_address(entropy: Entropy = os.urandom) -> bytes:
    """An address that nobody can guess, as released Ockam nodes make them: 16 hex digits."""
    return entropy(8).hex().encode()


def _frame(route: Route, return_route: Route, payload: bytes) -> bytes:
    arguments.octets("payload", payload)
    try:
        frame = encode_message(route, return_route, payload)
    except CodecError as error:
        raise RequestError("message.route", error.text) from None
    if len(frame) > FRAME_BYTES_MAX:
        text = (
            f"a message has at most {FRAME_BYTES_MAX:,} bytes with its routes, not {len(frame):,}"
        )
        raise RequestError("message.size", text)
    return frame


def _raise_failure(payload: bytes) -> None:
    """Raise what a node says that could not hand a message on; other answers are left alone."""
    try:
        response = native.decode_response(payload)
    except CodecError:
        return
    if isinstance(response, native.Failure):
        raise failure_of(response)
