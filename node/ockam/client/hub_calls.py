"""Questions to a hub's services: which answer counts, and what is asked again."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from typing import Final, Literal, TypeVar

from rillnode.codecs.errors import ActorError, CodecError, RequestError, RillnodeError
from rillnode.codecs.routing.routes import Route, WireMessage, local
from rillnode.codecs.routing.stream import (
    ErrorResponse,
    Request,
    Response,
    decode_response,
    encode_request,
)
from rillnode.node.client.messages import Messages
from rillnode.node.client.subscription import PASSING

HubServices = Literal["auto", "stream", "stream_service"]
"""Address of the stream service; the index service goes by it. `auto`: whichever answers."""

Service = Literal["", "_index"]
"""What the address of a service has between `stream` and the `_service` of older ones."""

_AWAY: Final = PASSING | {
    "hub.lost", "hub.not_saved", "hub.timeout", "node.draining", "peer.busy", "peer.unreachable",
}  # fmt: skip
PAUSE_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_ENDINGS: Final[dict[HubServices, tuple[str, ...]]] = {
    "auto": ("", "_service"),
    "stream": ("",),
    "stream_service": ("_service",),
}
_REASON_CHARACTERS_MAX: Final = 200


def passes(error: RillnodeError) -> bool:
    """Whether the hub, or a node on the way, is away, busy or has forgotten, and may be back."""
    return error.code in _AWAY or (isinstance(error, RequestError) and error.retryable)


T = TypeVar("T")
Take = Callable[[Response, Route], T | None]
"""Takes what came and from where; None: the answer is not, or not wholly, there yet."""


class HubCalls:
    """Asks the services at the end of a route.

    Every question has a return address of its own, so that no answer is taken for another's.

    Args:
        messages: carries them.
        route: leads to the hub, not to a service.
        services: how the hub calls its services.
        answer_seconds: how long one answer may take.
        patience_seconds: how long a hub that is away is asked again.
    """

    def __init__(
        self,
        messages: Messages,
        route: Route,
        *,
        services: HubServices,
        answer_seconds: float,
        patience_seconds: float,
    ) -> None:
        self._messages = messages
        self._route = route
        self._endings = _ENDINGS[services]
        self._answer_seconds = answer_seconds
        self._patience_seconds = patience_seconds

    async def persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Attempt until it succeeds, fails for good, or the patience is at its end.

        Raises:
            RillnodeError: that of the last attempt.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_seconds
        pauses = chain(PAUSE_SECONDS, repeat(PAUSE_SECONDS[-1]))
        while True:
            pause = next(pauses)
            try:
                return await attempt()
            except RillnodeError as error:
                if not passes(error) or loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)

    async def ask(self, route: Route, request: Request, take: Take[T]) -> T:
        """Ask the worker at the end of `route` once.

        Raises:
            RequestError: `hub.refused`, the hub answered `error`; `hub.answer`, what it answered
                is no message of a stream service; `hub.request`, the request cannot be written;
                a node on the way could not hand it on (`peer.unreachable`, `address.unknown`).
            ActorError: `hub.timeout`.
            TransportError: the client or its channel is closed.
        """
        taken: list[T | RequestError] = []

        def accept(wire: WireMessage) -> bool:
            found = _taken(wire, take)
            if found is not None:
                taken.append(found)
            return found is not None

        payload = _encoded(request)
        seconds = self._answer_seconds
        try:
            await self._messages.ask(route, payload, seconds=seconds, accept=accept)
        except ActorError as error:
            if error.code != "message.timeout":
                raise
            text = f"the hub has not answered {request.tag} in {seconds:g} s"
            raise ActorError("hub.timeout", text) from None
        found = taken[0]
        if isinstance(found, RequestError):
            raise found
        return found

    async def ask_service(self, service: Service, request: Request, take: Take[T]) -> T:
        """Ask a service once, under each name that it may have; raises as `ask` does."""
        *others, last = self._endings
        for ending in others:
            try:
                found = await self.ask(self._service(service, ending), request, take)
            except RillnodeError as error:
                if error.code not in ("hub.timeout", "address.unknown"):
                    raise
            else:
                self._endings = (ending,)
                return found
        found = await self.ask(self._service(service, last), request, take)
        self._endings = (last,)
        return found

    def tell_service(self, service: Service, request: Request) -> None:
        """Send a service what it does not answer.

        Raises:
            RequestError: `hub.request`, it cannot be written.
            TransportError: there is no link now, or the client or its channel is closed.
        """
        self._messages.send(self._service(service, self._endings[0]), _encoded(request))

    def _service(self, service: Service, ending: str) -> Route:
        return (*self._route, local(f"stream{service}{ending}"))


def _taken(wire: WireMessage, take: Take[T]) -> T | RequestError | None:
    try:
        response = decode_response(wire.payload)
    except CodecError as error:
        return RequestError("hub.answer", f"the hub's answer is no message: {error}")
    if isinstance(response, ErrorResponse):
        reason = response.reason[:_REASON_CHARACTERS_MAX]
        return RequestError("hub.refused", f"the hub refused: {reason!r}")
    return take(response, wire.return_route)


def _encoded(request: Request) -> bytes:
    try:
        return encode_request(request)
    except CodecError as error:
        raise RequestError("hub.request", f"no hub can be asked this: {error.text}") from None
