"""Keeps the admin sessions of the page, and does what is asked in them as who has asked for them.

A principal with `admin` asks the node for a ticket over its own link. The page exchanges it, once,
for a session, which has two secrets: a cookie, which no script can read, and a token that the page
sends in a header. A page of another site has neither; whoever serves another port of this host is
sent the cookie, and does not have the token.
"""

import asyncio
import hashlib
import re
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Annotated, Any, Final, get_args

import msgspec
from aiohttp import web
from msgspec import Meta, Struct, structs

from rillnode.actors.core.access import ANONYMOUS, Access
from rillnode.actors.ports import Clock, Entropy
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.node.client.client import TAKE_BACK_ENTRIES, Client, move_index
from rillnode.node.client.session import Session
from rillnode.node.http.answers import NUMBER_MAX, json_answer
from rillnode.node.http.gate import names_loopback
from rillnode.node.http.proxies import proxied_hosts
from rillnode.node.http.requests import decoded, json_body

logger = event_logger("rillnode.node.http.console")

TICKET_SECONDS: Final = 120.0
SESSION_SECONDS: Final = 3_600.0
TICKETS_MAX: Final = 16
SESSIONS_MAX: Final = 16
"""Of more, the oldest is forgotten: only administrators make them."""

COMMANDS_PER_MINUTE: Final = 60
"""In one session. Own choice: people's hands are slower."""

EXCHANGES_PER_MINUTE: Final = 20
"""Tickets that one remote address may try."""

REMOTES_MAX: Final = 1_000
BODY_BYTES_MAX: Final = 1_048_576
"""Bytes of a command; what is larger is pushed by a program."""

HEADER: Final = "Rillnode-Console"
_SECRET_BYTES: Final = 32
_MINUTE: Final = 60.0

_Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
_Partition = Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)]


class Push(Struct, tag_field="do", tag="push", forbid_unknown_fields=True):
    """Push one entry; where `json` is true, it must be that."""

    stream: str
    text: str
    json: bool = False
    key: str | None = None
    headers: dict[str, str] = {}
    partition: _Partition | None = None


class Create(Struct, tag_field="do", tag="create", forbid_unknown_fields=True):
    """Create a stream, or more partitions of one."""

    stream: Annotated[str, Meta(min_length=1)]
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] = 1


class Trim(Struct, tag_field="do", tag="trim", forbid_unknown_fields=True):
    """Drop a partition's entries below an index."""

    stream: str
    partition: _Partition
    before: _Number


class Remove(Struct, tag_field="do", tag="remove", forbid_unknown_fields=True):
    """Remove a stream for ever, whose name was `typed` to confirm that."""

    stream: str
    typed: str


class SetIndex(Struct, tag_field="do", tag="set_index", forbid_unknown_fields=True):
    """Move a consumer's position."""

    stream: str
    consumer: Annotated[str, Meta(min_length=1)]
    partition: _Partition
    index: _Number


class RunSink(Struct, tag_field="do", tag="run_sink", forbid_unknown_fields=True):
    """Let a sink's job run, or pause after its batch."""

    sink: str
    run: bool


class Retry(Struct, tag_field="do", tag="retry", forbid_unknown_fields=True):
    """Give dead letters of a work queue to its workers again, the oldest first."""

    stream: str
    queue: str
    limit: Annotated[int, Meta(ge=1, le=TAKE_BACK_ENTRIES)] = TAKE_BACK_ENTRIES


Command = Push | Create | Trim | Remove | SetIndex | RunSink | Retry
COMMANDS: Final[tuple[type[Command], ...]] = get_args(Command)

_SEND: Final = 'Send a command, such as {"do": "create", "stream": "sensors", "partitions": 1}'
_CONTENT: Final = frozenset(("text", "json", "key", "headers", "typed"))
"""What of a command no log is told."""


async def carry_out(client: Client, command: Command) -> dict[str, Any]:
    """Do what is asked, as the client's principal; what came of it.

    Raises:
        RillnodeError: it was refused, or has failed.
        RequestError: it cannot be meant so.
    """
    match command:
        case Push(stream=name, text=text, key=key):
            if command.json:
                decoded(text.encode(), object, "The entry is not JSON")
            stream = await client.stream(name)
            partition = command.partition
            if partition is None:
                partition = stream.partition_of(key)
            index = await stream.push(
                text.encode(), key=key, headers=command.headers or None, partition=partition
            )
            return {"partition": partition, "index": index}
        case Create(stream=name, partitions=partitions):
            return {"partitions": (await client.stream(name, partitions=partitions)).partitions}
        case Trim(stream=name, partition=partition, before=before):
            return {"first_index": await client.trim(name, partition=partition, before=before)}
        case Remove(stream=name, typed=typed):
            if typed != name:
                raise RequestError("console.typed", "Type the stream's name to remove it for ever")
            await client.remove(name)
            return {}
        case SetIndex(stream=name, consumer=consumer, partition=partition, index=index):
            await move_index(client, name, consumer, partition, index)
            return {"index": index}
        case RunSink(sink=sink, run=run):
            await client.run_sink(sink, run=run)
            return {}
        case Retry(stream=name, queue=queue, limit=limit):
            back = await client.take_back(name, queue, entries_max=limit)
            return {"taken": back.taken, "gone": back.gone}


@dataclass(slots=True)
class _Pace:
    """Tells when something was done too often within a minute."""

    times: deque[float]

    @classmethod
    def of(cls, per_minute: int) -> "_Pace":
        return cls(deque(maxlen=per_minute))

    def admits(self, now: float) -> bool:
        """Count once more, or refuse it."""
        if len(self.times) == self.times.maxlen and now - self.times[0] < _MINUTE:
            return False
        self.times.append(now)
        return True


@dataclass(slots=True, frozen=True)
class _Ticket:
    principal: str
    until: float


@dataclass(slots=True, frozen=True)
class _Admitted:
    """A session, whose token is known by its hash."""

    principal: str
    until: float
    token: bytes
    pace: _Pace = field(default_factory=lambda: _Pace.of(COMMANDS_PER_MINUTE))


class Console:
    """The admin sessions of one node's page.

    Args:
        access: says who administers.
        session: what a client stands on, as any principal.
        address: where the page is served, once it is.
        tls: whether over TLS.
        clock: tells when tickets and sessions end.
        entropy: where their secrets are from.
    """

    def __init__(
        self,
        access: Access,
        session: Callable[[str], Session],
        address: Callable[[], str],
        *,
        tls: bool,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._access = access
        self._session = session
        self._address = address
        self._tls = tls
        self._clock = clock
        self._entropy = entropy
        # By their secrets' hashes, the oldest first: whoever could read them could not use them.
        self._tickets: dict[bytes, _Ticket] = {}
        self._sessions: dict[bytes, _Admitted] = {}
        self._remotes: dict[str, _Pace] = {}

    def invite(self, principal: str) -> bytes:
        """A ticket for an administrator, as a JSON document.

        Raises:
            RequestError: nobody knows who that is.
        """
        if principal == ANONYMOUS:
            text = "A session belongs to an identity: ask for it over a link that proves one"
            raise RequestError("console.anonymous", text)
        self._sweep()
        secret, ticket = self._secret()
        self._tickets[ticket] = _Ticket(principal, self._clock.monotonic() + TICKET_SECONDS)
        if len(self._tickets) > TICKETS_MAX:
            del self._tickets[next(iter(self._tickets))]
        logger.info("console_ticket", extra={"principal": principal})
        return msgspec.json.encode(
            {
                "ticket": secret,
                "address": self._address(),
                "tls": self._tls,
                "seconds": TICKET_SECONDS,
            }
        )

    def look(self) -> None:
        """End the sessions of who administers no more."""
        for key, session in tuple(self._sessions.items()):
            if not self._access.administers(session.principal):
                self._end(key, "right")

    def add_to(self, app: web.Application) -> None:
        """Serve the paths."""
        app.router.add_post("/v1/session", self._exchange)
        app.router.add_get("/v1/session", self._tell, allow_head=False)
        app.router.add_delete("/v1/session", self._leave)
        app.router.add_post("/v1/console", self._act)

    async def _exchange(self, request: web.Request) -> web.Response:
        """Give a session for a ticket."""
        self._check_way(request)
        remote = request.remote or ""
        pace = self._remotes.pop(remote, None) or _Pace.of(EXCHANGES_PER_MINUTE)
        self._remotes[remote] = pace
        if len(self._remotes) > REMOTES_MAX:
            del self._remotes[next(iter(self._remotes))]
        now = self._clock.monotonic()
        if not pace.admits(now):
            raise RequestError("console.busy", "Too many tickets were tried: wait a minute")
        body = await json_body(request, dict[str, str], 'Send {"ticket": "..."}')
        self._sweep()
        found = self._tickets.pop(_hash(body.get("ticket", "")), None)
        if found is None or not self._access.administers(found.principal):
            text = "This link was already used, or has expired"
            raise RequestError("console.ticket", text)
        cookie, key = self._secret()
        token, token_hash = self._secret()
        session = _Admitted(found.principal, now + SESSION_SECONDS, token_hash)
        self._sessions[key] = session
        if len(self._sessions) > SESSIONS_MAX:
            self._end(next(iter(self._sessions)), "another")
        logger.info("console_begun", extra={"principal": session.principal, "remote": remote})
        answer = json_answer({"token": token, **self._about(session)}, 201)
        answer.set_cookie(
            _cookie(request), cookie, max_age=int(SESSION_SECONDS), path="/v1",
            httponly=True, samesite="Strict", secure=self._tls,
        )  # fmt: skip
        return answer

    async def _tell(self, request: web.Request) -> web.Response:
        """Whose the session is, and for how long."""
        return json_answer(self._about(self._admitted(request)[1]))

    async def _leave(self, request: web.Request) -> web.Response:
        """End the session."""
        self._end(self._admitted(request)[0], "logout")
        answer = json_answer({})
        answer.del_cookie(_cookie(request), path="/v1")
        return answer

    async def _act(self, request: web.Request) -> web.Response:
        """Carry out a command, and write down who did what."""
        session = self._admitted(request)[1]
        if not session.pace.admits(self._clock.monotonic()):
            raise RequestError("console.busy", "Too many commands in a minute: wait a little")
        kind: Any = Command
        command: Command = await json_body(request, kind, _SEND, BODY_BYTES_MAX)
        self._admitted(request)  # it may have ended while the body came
        about = {
            key: value for key, value in structs.asdict(command).items() if key not in _CONTENT
        }
        told = {"principal": session.principal, "do": type(command).__struct_config__.tag, **about}
        try:
            done = await carry_out(Client(self._session(session.principal)), command)
        except RillnodeError as error:
            logger.info("console_refused", extra={**told, "code": error.code})
            raise
        except asyncio.CancelledError:  # nobody waits for the answer, and it may be done
            logger.info("console_unknown", extra=told)
            raise
        logger.info("console_done", extra={**told, **done})
        return json_answer(done)

    def _admitted(self, request: web.Request) -> tuple[bytes, _Admitted]:
        """The session that a request is of.

        Raises:
            RequestError: there is none, or it is not the page that asks.
        """
        self._check_way(request)
        self._sweep()
        key = _hash(request.cookies.get(_cookie(request), ""))
        session = self._sessions.get(key)
        token = _hash(request.headers.get(HEADER, ""))
        if session is not None and not self._access.administers(session.principal):
            self._end(key, "right")
            session = None
        if session is None or not compare_digest(token, session.token):
            raise RequestError("console.session", "This admin session has ended")
        return key, session

    def _check_way(self, request: web.Request) -> None:
        """Refuse what is not sent by the node's own page, or could be overheard.

        Raises:
            RequestError: why.
        """
        own = f"{'https' if self._tls else 'http'}://{request.host}"
        is_get = request.method == "GET"  # for which browsers name no origin
        if request.headers.get("Origin", own if is_get else "") != own:
            raise RequestError("http.cross_site", "Only the node's own page may do this")
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise RequestError("http.cross_site", "Only the node's own page may do this")
        if self._tls:
            return
        if proxied_hosts(request.headers.items()) is not None:
            text = "Through a proxy, an admin session needs TLS of the node's own"
            raise RequestError("console.proxy", text)
        if not names_loopback(request.host):
            text = "Without TLS, use 127.0.0.1 or localhost in the address"
            raise RequestError("http.host", text)

    def _about(self, session: _Admitted) -> dict[str, Any]:
        seconds = round(session.until - self._clock.monotonic(), 1)
        return {"principal": session.principal, "seconds": seconds}

    def _secret(self) -> tuple[str, bytes]:
        """A new secret, and the hash that it is known by."""
        secret = urlsafe_b64encode(self._entropy(_SECRET_BYTES)).decode().rstrip("=")
        return secret, _hash(secret)

    def _sweep(self) -> None:
        """Forget tickets and sessions whose time is over."""
        now = self._clock.monotonic()
        self._tickets = {key: one for key, one in self._tickets.items() if one.until > now}
        for key, session in tuple(self._sessions.items()):
            if session.until <= now:
                self._end(key, "time")

    def _end(self, key: bytes, reason: str) -> None:
        session = self._sessions.pop(key)
        logger.info("console_ended", extra={"principal": session.principal, "reason": reason})


def _cookie(request: web.Request) -> str:
    """The cookie's name: of the port that the browser has the page at, as cookies are a host's."""
    port = re.search(r":([0-9]{1,5})$", request.host)
    return f"rillnode-console-{port[1]}" if port else "rillnode-console"


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
