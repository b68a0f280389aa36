"""What a client asks the desk `about` of its node, or of one behind it: routes, looked up."""

from collections.abc import AsyncGenerator
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import replace

from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.routing.routes import LOCAL, Route, local
from rillnode.node.client.messages import Messages

DESK: Final = local("about")

WATCH_SECONDS: Final = 30.0
"""How long one request watches: a client that has gone is forgotten in that time. Own choice."""

_SLACK_SECONDS: Final = 10.0
"""How much longer the answer may take."""

_ID: Final = 0
"""Of every request: its answer comes to an address that is for it alone."""


class About(Struct, frozen=True, kw_only=True):
    """What is at the end of a route.

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
    return _told(route, await _ask(messages, route, native.AboutRequest(_ID), seconds))


async def watch(messages: Messages, route: Route) -> About:
    """Wait until what is at the end of a route has ended, and tell how it was last."""
    last: About | None = None
    while True:
        request = native.WatchRequest(_ID, round(1_000 * WATCH_SECONDS))
        try:
            response = await _ask(messages, route, request, WATCH_SECONDS + _SLACK_SECONDS)
        except RequestError as error:
            # It may have ended while a link was lost.
            if last is None or error.code != "address.unknown":
                raise
            return _ended(last)
        last = _told(route, response)
        if last.state == "ended":
            return last


async def stop(messages: Messages, route: Route, seconds: float) -> None:
    """Have what is at the end of a route stop."""
    response = await _ask(messages, route, native.StopRequest(_ID), seconds)
    if not isinstance(response, native.DoneResponse):
        raise _unexpected()


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
    response = await _request(messages, (*at, DESK), request, seconds)
    if not isinstance(response, native.RoutesResponse):
        raise _unexpected()
    return [About.of(at, info) for info in response.routes], response.next_after


async def _ask(messages: Messages, route: Route, request: Any, seconds: float) -> Any:
    if not route:
        raise RequestError("message.route", "a route has one address at least")
    return await _request(messages, (*route[:-1], DESK, route[-1]), request, seconds)


async def _request(messages: Messages, route: Route, request: Any, seconds: float) -> Any:
    wire = await messages.ask(route, native.encode(request), seconds=seconds)
    try:
        return native.decode_response(wire.payload)
    except CodecError:
        raise _unexpected() from None


def _text(route: Route) -> str:
    """A route as people write it: without the type that a hop has when they say none."""
    return ";".join(
        str(hop).removeprefix(f"{LOCAL}#") if b"#" not in hop.value else str(hop) for hop in route
    )


def _told(route: Route, response: object) -> About:
    if not isinstance(response, native.RouteResponse):
        raise _unexpected()
    return About.of(route[:-1], response.route)


def _ended(last: About) -> About:
    return replace(last, state="ended", mailbox=0)


def _unexpected() -> RequestError:
    text = "the node gave another kind of answer: routes are looked up over rillnode's own links"
    return RequestError("client.answer", text)
