"""Asks the desk `about` of a client's node, or of one behind it, to look up routes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rillnode.codecs import native
from rillnode.codecs.errors import (
    ActorError,
    CodecError,
    RequestError,
    RillnodeError,
    TransportError,
)
from rillnode.codecs.routing.routes import LOCAL, Route, WireMessage, local
from rillnode.node.client.messages import ANSWER_SECONDS, Messages

DESK: Final = local("about")

WATCH_SECONDS: Final = 30.0
"""How long one request watches: a client that has gone is forgotten in that time. Own choice."""

_SLACK_SECONDS: Final = 10.0
"""How much longer the answer may take."""

_ID: Final = 0
"""Of every request: its answer comes to an address that is for it alone."""


R = TypeVar("R")


class About(Struct, frozen=True, kw_only=True):
    """A description of what is at the end of a route.

    Attributes:
        route: leads to it from who asked.
        kind: `stream`, `index`, `subscription`, `link`, `peer`, `sink`, `actor` (an application's),
            `served` (by clients), `alias`, `channel`, or `service`: all else that a node offers.
        name: what people call it.
        actor_class: of its actor; empty while it has none.
        owner: the principal whose it is; empty: the node's.
        parent: the route of what answers for it, or has made it; empty: nothing.
        since: when it was made, ms since 1970; None: not known.
        state: `idle`; `busy`, messages wait; `resting` until the next message; `ending`, `ended`;
            of a peer how its link is.
        mailbox: messages that wait for it.
        handled: messages that all actors of its class have handled so far.
        failures: likewise failures.
        restarts: likewise restarts.
        slowest_seconds: the longest turn of them.
        stoppable: whether who asked may stop it.
    """

    route: str
    kind: str
    name: str
    actor_class: str
    owner: str
    parent: str
    since: int | None
    state: str
    mailbox: int
    handled: int
    failures: int
    restarts: int
    slowest_seconds: float
    stoppable: bool

    @classmethod
    def of(cls, before: Route, info: native.RouteInfo) -> Self:
        """What a node has told; `before` leads to that node."""
        return cls(
            route=_text((*before, local(info.address))),
            kind=info.kind,
            name=info.name,
            actor_class=info.actor_class,
            owner=info.owner,
            parent=_text((*before, local(info.parent))) if info.parent else "",
            since=info.since or None,
            state=info.state,
            mailbox=info.mailbox,
            handled=info.handled,
            failures=info.failures,
            restarts=info.restarts,
            slowest_seconds=info.slowest_microseconds / 1e6,
            stoppable=info.stoppable,
        )


async def about(messages: Messages, route: Route, seconds: float) -> About:
    """What is at the end of a route."""
    by_desk, request = _by_desk(route), native.AboutRequest(_ID)
    return _told(route, await _ask(messages, by_desk, request, native.RouteResponse, seconds))


async def watch(messages: Messages, route: Route) -> About:
    """Wait until what is at the end of a route has ended, and tell how it was last."""
    last = await about(messages, route, ANSWER_SECONDS)
    while last.state != "ended":
        try:
            last = _told(route, await _Watch(messages, _by_desk(route)).outcome())
        except RequestError as error:
            if error.code != "address.unknown":
                raise
            last = replace(last, state="ended", mailbox=0)  # while there was no link
    return last


class _Watch:
    """One request that watches, sent again over each new link.

    It is no question: a client that closes does not wait for it.
    """

    def __init__(self, messages: Messages, route: Route) -> None:
        self._messages = messages
        self._route = route
        self._payload = native.encode(native.WatchRequest(_ID, round(1_000 * WATCH_SECONDS)))
        self._answer: asyncio.Future[WireMessage] = asyncio.get_running_loop().create_future()
        self._address = b""

    async def outcome(self) -> native.RouteResponse:
        """What the node tells when it has ended, or the time is over.

        Raises:
            RequestError: the node refuses.
            ActorError: `message.timeout`, it tells nothing.
            TransportError: the client is closed, or closes meanwhile.
        """
        if self._messages.error is not None:
            raise self._messages.error
        self._address = self._messages.attach(self._received, self)
        try:
            async with asyncio.timeout(WATCH_SECONDS + _SLACK_SECONDS):
                with suppress(TransportError):  # there is no link now: the next one is told of
                    self.link_opened()
                wire = await self._answer
        except TimeoutError:
            text = f"nothing has come back in {WATCH_SECONDS + _SLACK_SECONDS:g} s"
            raise ActorError("message.timeout", text) from None
        finally:
            self._messages.detach(self._address)
        return _decoded(wire, native.RouteResponse)

    def _received(self, wire: WireMessage) -> None:
        if not self._answer.done():
            self._answer.set_result(wire)

    def link_opened(self) -> None:
        """Ask, for nobody knows over a new link what was asked over another."""
        self._messages.send(self._route, self._payload, (local(self._address),))

    def ended(self, error: RillnodeError) -> None:
        """Nothing comes any more."""
        if not self._answer.done():
            self._answer.set_exception(error)


async def stop(messages: Messages, route: Route, seconds: float) -> None:
    """Have what is at the end of a route stop."""
    request = native.StopRequest(_ID)
    await _ask(messages, _by_desk(route), request, native.DoneResponse, seconds)


async def pages(
    messages: Messages, at: Route, pattern: str, kind: str, seconds: float
) -> AsyncGenerator[list[About]]:
    """What there is at a node, page by page."""
    after = b""
    while True:
        rows, after = await page(messages, at, pattern, kind, after, seconds)
        yield rows
        if not after:
            return


async def page(
    messages: Messages, at: Route, pattern: str, kind: str, after: bytes, seconds: float
) -> tuple[list[About], bytes]:
    """One page of what there is at a node, and where the next begins; empty: there is none."""
    request = native.ListRoutesRequest(_ID, pattern, kind, after)
    response = await _ask(messages, (*at, DESK), request, native.RoutesResponse, seconds)
    return [About.of(at, info) for info in response.routes], response.next_after


async def _ask(
    messages: Messages, route: Route, request: native.Request, kind: type[R], seconds: float
) -> R:
    wire = await messages.ask(route, native.encode(request), seconds=seconds)
    return _decoded(wire, kind)


def _by_desk(route: Route) -> Route:
    """The way to the desk of the node at which a route ends, and what is asked after there."""
    return (*route[:-1], DESK, route[-1])


def _decoded(wire: WireMessage, kind: type[R]) -> R:
    try:
        response = native.decode_response(wire.payload)
    except CodecError:
        raise _unexpected() from None
    if isinstance(response, native.Failure):
        raise native.failure_of(response)
    if not isinstance(response, kind):
        raise _unexpected()
    return response


def _text(route: Route) -> str:
    """A route as people write it: without the type that a hop has when they say none."""
    return ";".join(
        str(hop).removeprefix(f"{LOCAL}#") if b"#" not in hop.value else str(hop) for hop in route
    )


def _told(route: Route, response: native.RouteResponse) -> About:
    return About.of(route[:-1], response.route)


def _unexpected() -> RequestError:
    text = "the node gave another kind of answer: routes are looked up over rillnode's own links"
    return RequestError("client.answer", text)
