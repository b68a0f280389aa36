"""Shares callers, answers and questions among the handlers of the REST interface."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from rillnode.actors.core.access import ANONYMOUS, Access
from rillnode.actors.core.streams.revising import Revise, Revised, ReviseStream
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import FindStream, StreamRecord
from rillnode.actors.streamr import metadata
from rillnode.actors.streamr.catalogue import Catalogue
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.directory import Question
from rillnode.actors.streamr.requests import ResendQuery, ResendSink
from rillnode.actors.streamr.resend import spawn_resend
from rillnode.actors.streamr.sessions import Sessions
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.limits import STREAMR_REST_BODY_BYTES_MAX, STREAMR_REST_RESENDS_MAX
from rillnode.node.streamr.rest.answers import error_answer
from rillnode.node.streamr.rest.numbers import Numbers
from rillnode.node.streamr.rest.origins import admits

logger = event_logger("rillnode.node.streamr.rest")

ASK_SECONDS: Final = 30.0
BODY_SECONDS_MAX: Final = 30.0
_BEARER: Final = "bearer "
_UNREAD: Final = frozenset({"rest.too_large", "rest.too_slow", "rest.broken"})
"""After these errors nobody knows where the next request begins."""

Handler = Callable[["Rest", web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Rest:
    """The node's parts that handlers work with.

    Attributes:
        context: the parts that Streamr's actors work with, too.
        sessions: logs clients in.
        catalogue: knows streams by what they are called.
        stream_service: makes, changes and removes streams.
        numbers: number messages that come without.
        origins: web pages that may ask from within browsers; `*`: all.
        resends: what is being read for answers now.
    """

    context: StreamrContext
    sessions: Sessions
    catalogue: Catalogue
    stream_service: Cell
    numbers: Numbers
    origins: frozenset[str] = frozenset()
    resends: set[Cell] = field(default_factory=set[Cell])

    @property
    def access(self) -> Access:
        """Who may do what."""
        return self.context.streams.access

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.context.streams.clock.now_ms()

    async def ask(self, target: Cell, message: object) -> Any:
        """Ask an actor.

        Raises:
            ActorError: it does not answer.
        """
        return await self.context.streams.system.ask(target, message, ASK_SECONDS)

    async def question(self, operation: Question) -> Any:
        """Have the store read; returns the operation, completed.

        Raises:
            StoreError: it cannot.
        """
        done = await self.ask(self.context.directory, operation)
        if done.error is not None:
            raise done.error
        return done

    async def find(self, name: str, principal: str, operation: str) -> StreamRecord:
        """The record of a stream on which a principal may do `operation`.

        Raises:
            RequestError: `stream.unknown`, `streamr.forbidden`.
        """
        done: FindStream = await self.question(FindStream(name=name))
        record = done.record
        if record is None:
            raise metadata.unknown(name)
        metadata.check(record, self.access, principal, operation)
        return record

    def begin_resend(self, query: ResendQuery, sink: ResendSink) -> Cell:
        """Have stored messages read; to be ended by `end_resend` in any case.

        Raises:
            RequestError: `rest.busy`.
        """
        if len(self.resends) >= STREAMR_REST_RESENDS_MAX:
            raise RequestError("rest.busy", "Too many are reading: wait a little", retryable=True)
        resend = spawn_resend(self.context, query, sink)
        self.resends.add(resend)
        return resend

    def end_resend(self, resend: Cell) -> None:
        """End a reading; harmless where it has ended by itself."""
        self.resends.discard(resend)
        self.context.streams.system.exit(resend)

    async def revise(self, name: str, principal: str, revise: Revise) -> StreamRecord | None:
        """Change what is stored of a stream.

        Raises:
            RillnodeError: why it was not changed.
        """
        revised: Revised = await self.ask(
            self.stream_service, ReviseStream(name, principal, revise)
        )
        if revised.error is not None:
            raise revised.error
        return revised.record


def token_of(request: web.Request) -> str | None:
    """The session token that a request bears."""
    header = request.headers.get("Authorization", "")
    if header[: len(_BEARER)].lower() != _BEARER:
        return None
    return header[len(_BEARER) :].strip()


def principal_of(rest: Rest, request: web.Request) -> str:
    """Who asks.

    Raises:
        RequestError: `session.invalid`.
    """
    return rest.sessions.principal_of(token_of(request))


def user_principal_of(rest: Rest, request: web.Request) -> str:
    """Who asks, where that must be somebody.

    Raises:
        RequestError: `session.invalid`, `session.needed`.
    """
    principal = principal_of(rest, request)
    if principal == ANONYMOUS:
        raise RequestError("session.needed", "Log in, and send the token as a Bearer")
    return principal


async def body_of(request: web.Request) -> bytes:
    """A request's body.

    Raises:
        RequestError: `rest.too_large`, `rest.too_slow`, `rest.broken`: its end never comes.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > STREAMR_REST_BODY_BYTES_MAX:
                    text = f"A body has at most {STREAMR_REST_BODY_BYTES_MAX} bytes"
                    raise RequestError("rest.too_large", text)
    except TimeoutError:
        raise RequestError("rest.too_slow", "The body did not come in time") from None
    except (web.RequestPayloadError, ConnectionError):
        raise RequestError("rest.broken", "The body is not what its headers say") from None
    return bytes(body)


def handled(rest: Rest, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A handler as aiohttp takes it: errors become answers, browsers are told what they may."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            answer = await handler(rest, request)
        except RillnodeError as error:
            if not isinstance(error, RequestError):
                logger.info("rest_failed", extra={"code": error.code, "path": request.path[:200]})
            answer = error_answer(error)
            if error.code in _UNREAD:
                answer.force_close()
        if not answer.prepared:
            answer.headers.update(cors_headers(rest, request))
        return answer

    return handle


def cors_headers(rest: Rest, request: web.Request) -> dict[str, str]:
    """What lets a browser show the answer to the page that asked for it."""
    origin = request.headers.get("Origin")
    if origin is None or not admits(rest.origins, origin):
        return {}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, DELETE, OPTIONS",
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Streamr-Client",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }
