"""The connection actor: one WebSocket of one of Streamr's clients.

Requests are taken in the order in which they came. Publishing has no answer but an error; what
follows on the same connection sees what was published before it. Nothing more is read from a client
while much of what it has published is not durable yet, or much of what it is sent not taken.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, assert_never

from thespian.actors import ChildActorExited

from rillnode.actors.core.links.connection import Drain
from rillnode.actors.core.links.link_actor import (
    HELD_READS_MAX,
    Closed,
    LinkActorEvents,
    Received,
    link_address,
    nobody,
)
from rillnode.actors.core.links.tracing import Kind
from rillnode.actors.core.rights import Key, RightsChanged
from rillnode.actors.core.room import Room
from rillnode.actors.core.streams.context import parse_stream_address, stream_address
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import FramedLink, Link
from rillnode.actors.streamr.admission import check_encryption, check_permission, may
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.outlet import Outlet
from rillnode.actors.streamr.requests import (
    AUTHENTICATION_FAILED,
    INVALID_REQUEST,
    PERMISSION_DENIED,
    Publication,
    Publish,
    Published,
    Revoked,
    Subscribe,
    SubscribeFailed,
    Unsubscribe,
)
from rillnode.actors.streamr.resend import spawn_resend
from rillnode.actors.streamr.resend_answer import AnyResendRequest, ResendAnswer
from rillnode.actors.streamr.resend_query import resend_query
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import STORE_PENDING_HIGH_BYTES
from rillnode.codecs.streamr.control import decode_control, request_id_of
from rillnode.codecs.streamr.control_messages import (
    ControlMessage,
    PublishRequest,
    RequestId,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.limits import (
    STREAMR_BACKLOG_HIGH_BYTES,
    STREAMR_PUBLISHING_BYTES_MAX,
    STREAMR_PUBLISHING_MESSAGES_MAX,
    STREAMR_RESENDS_PER_LINK_MAX,
    STREAMR_SUBSCRIPTIONS_PER_LINK_MAX,
)
from rillnode.codecs.streamr.stream_message import Layout, SignatureType

logger = event_logger("rillnode.actors.streamr.connection")

SLICE_FRAMES: Final = 32
"""Requests taken in one turn: so many signatures are verified in about 2 ms."""

HOLD_SECONDS: Final = 0.005
"""How often a held connection looks whether it may go on."""

PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Subscription:
    """What a client is subscribed by.

    Attributes:
        principal: who it is, and `token` of whose session.
        request: what its relay was sent; an error that ends it carries the id.
        watched: what the right to it depends on.
    """

    principal: str
    token: str | None
    request: Subscribe
    watched: Sequence[Key]


@dataclass(frozen=True, slots=True)
class _GoOn:
    """Time to take more requests."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A client's terms from its connection request.

    Attributes:
        control_version: of what it is sent.
        message_version: likewise.
        layouts: those that it reads, the preferred first; None: what it writes tells.
        names_keys: whether it is to name the key of what it encrypts, where the version can.
        survives_errors: whether it stays connected after an error that it has not asked for.
    """

    control_version: int
    message_version: int
    layouts: tuple[Layout, ...] | None = None
    names_keys: bool = True
    survives_errors: bool = True


_CONTROL: Final = re.compile(rb"\s*\[\s*(\d{1,3})\s*,\s*(\d{1,3})\s*[,\]]")


class StreamrEvents(LinkActorEvents[FramedLink]):
    """The events of one WebSocket."""

    __slots__ = ()

    def __init__(self, context: StreamrContext, terms: Terms) -> None:
        def factory(link: FramedLink) -> Callable[[], StreamrConnection]:
            outlet = Outlet(
                link,
                terms.control_version,
                terms.message_version,
                terms.layouts,
                survives_errors=terms.survives_errors,
            )
            return partial(StreamrConnection, context, link, outlet, names_keys=terms.names_keys)

        super().__init__(context.streams.system, factory)

    def kind_of(self, link: FramedLink) -> Kind:
        """What names control messages: their version and type."""
        return control_kind


def control_kind(message: bytes) -> str:
    """The name of a control message in a trace, read from its first two numbers."""
    found = _CONTROL.match(message)
    return f"control v{int(found[1])} type {int(found[2])}" if found else "unknown"


class StreamrConnection(Worker):
    """The connection of a Streamr client's WebSocket."""

    mailbox_messages_max = 8_192
    spare: ClassVar = {
        Received: HELD_READS_MAX,
        Published: STREAMR_PUBLISHING_MESSAGES_MAX,
        SubscribeFailed: STREAMR_SUBSCRIPTIONS_PER_LINK_MAX,
        Drain: 1,
        Closed: 1,
    }
    on_failure = "stop"
    has_parts = True

    def __init__(
        self, context: StreamrContext, link: Link, outlet: Outlet, *, names_keys: bool = True
    ) -> None:
        self._context = context
        self._names_keys = names_keys
        self._own_address = b""
        self._made_at = 0.0
        self._link = link
        self._outlet = outlet
        self._frames: list[bytes] = []
        self._scheduled = False
        self._draining = False
        # In their order: what ends them must not depend on how texts are hashed.
        self._subscribed: dict[PartitionName, _Subscription] = {}
        self._resends: set[Cell] = set()
        self._room: Room | None = None  # of its resends
        self._login: tuple[str | None, str] = (None, "")
        # The token or API key that was last found good.
        self._proof: tuple[str | None, str | None] = (None, None)
        # Messages handed on that are not durable yet, and those of this turn.
        self._publishing = 0
        self._publishing_bytes = 0
        self._publications: dict[PartitionName, list[Publication]] = {}

    def started(self) -> None:
        """Be known as open, and at an address."""
        streams = self._context.streams
        self._made_at = self.system.timing.monotonic()
        self._own_address = link_address(b"WS_", streams.clock, self._context.numbers)
        streams.router.register(self._own_address, self.address, nobody)
        self._context.open.add(self.address)
        logger.info("client_connected", extra={"remote": self._link.info.remote})

    def handle(
        self,
        message: Received
        | Closed
        | Drain
        | Published
        | SubscribeFailed
        | ChildActorExited
        | RightsChanged
        | _GoOn,
        sender: Cell | None,
    ) -> None:
        """Take requests from the link, answers from relays, and the end of the link."""
        match message:
            case Received(frames=frames):
                # What comes in one turn is taken together.
                self._frames += frames
                self._soon()
            case Published():
                self._published(message)
            case SubscribeFailed():
                self._failed(message.request)
            case ChildActorExited():
                self._resends.discard(message.childAddress)
                self._soon()
            case _GoOn():
                self._scheduled = False
                self._go_on()
            case Drain():
                self._draining = True
                self._link.pause_reading()
            case RightsChanged(key=key):
                self._revoke(key)
            case Closed(reason=reason):
                remote = self._link.info.remote
                logger.info("client_gone", extra={"remote": remote, "reason": reason})
                self.system.exit(self.address)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Unsubscribe from everything; resends end as the connection's children."""
        self._context.open.discard(self.address)
        self._context.streams.router.unregister(self._own_address)
        for name in tuple(self._subscribed):
            self._forget(name)
            unsubscribe = Unsubscribe(self._outlet, *name, silent=True)
            self.system.post(self._relay(*name), unsubscribe)
        if self._room is not None:
            self._room.close()
        self._link.close("connection ended")

    def described(self, address: bytes) -> Described | None:
        """The connection, or one of its subscriptions, for which there is no actor of its own."""
        own = self._own_address
        if address == own:
            return Described(
                "link",
                name=f"streamr {self._link.info.remote}",
                owner=self._link.info.principal,
                made_at=self._made_at,
                open_to="owner",
                stop=partial(self._link.close, "it was stopped at its address"),
            )
        name = parse_stream_address(address[len(own) + 1 :])
        subscription = self._subscribed.get(name) if name else None
        if name is None or subscription is None:
            return None
        return Described(
            "subscription",
            name="/".join(map(str, name)),
            owner=subscription.principal,
            made_at=self._made_at,
            open_to="owner",
            stop=partial(
                self._end, name, subscription, "This subscription was stopped at its address"
            ),
            parent=own,
        )

    def parts(self) -> Iterator[bytes]:
        """The addresses of its subscriptions."""
        for name in tuple(self._subscribed):
            yield b"%s/%s" % (self._own_address, stream_address(*name))

    @property
    def link(self) -> Link:
        """The link."""
        return self._link

    @property
    def route(self) -> bytes:
        """Its address."""
        return self._own_address

    def owes(self) -> bool:
        """Whether something that was read has no outcome yet."""
        return bool(self._frames or self._publishing or self._resends)

    # Taking requests -------------------------------------------------------------------------

    def _soon(self) -> None:
        if self._frames and not self._scheduled:
            self._scheduled = True
            self.send(self.address, _GoOn())

    def _go_on(self) -> None:
        """Take one slice of what was read, as far as nothing has to wait."""
        frames = self._frames[:SLICE_FRAMES]
        taken = 0
        while taken < len(frames) and not self._held():
            if not self._request(frames[taken]):
                break
            taken += 1
        del self._frames[:taken]
        self._hand_on()
        if not self._frames:
            if not self._draining:
                self._link.resume_reading()
            return
        self._link.pause_reading()
        if taken == len(frames):
            self._soon()
        elif not (self._publishing or self._resends):
            # Else the end of one of them is told.
            self._scheduled = True
            self.wake_after(HOLD_SECONDS, _GoOn())

    def _held(self) -> bool:
        return (
            self._publishing >= STREAMR_PUBLISHING_MESSAGES_MAX
            or self._publishing_bytes >= STREAMR_PUBLISHING_BYTES_MAX
            or self._link.buffered_bytes > STREAMR_BACKLOG_HIGH_BYTES
            or self._context.streams.store.pending_bytes > STORE_PENDING_HIGH_BYTES
        )

    def _request(self, frame: bytes) -> bool:
        """Take one request; False where it has to wait for what came before it."""
        try:
            _, request = decode_control(frame)
        except CodecError as error:
            self._context.counters[error.code] += 1
            refusal = RequestError(INVALID_REQUEST, str(error))
            self._refuse(refusal, request_id_of(frame))
            return True
        waits = not isinstance(request, PublishRequest)
        if waits and (self._publishing or self._publications):
            return False
        if isinstance(request, _RESENDS) and len(self._resends) >= STREAMR_RESENDS_PER_LINK_MAX:
            return False
        self._outlet.heard(request)
        try:
            self._take(request)
        except RequestError as error:
            self._refuse(error, request.request_id)
        return True

    def _take(self, request: ControlMessage) -> None:
        """Carry out a request.

        Raises:
            RequestError: it is not carried out, and why.
        """
        match request:
            case PublishRequest():
                self._publish(request)
            case SubscribeRequest():
                self._subscribe(request)
            case UnsubscribeRequest():
                self._unsubscribe(request)
            case ResendLastRequest() | ResendFromRequest() | ResendRangeRequest() | ResendRequest():
                self._resend(request)
            case _:
                text = f"Messages of type {request.type} are no requests"
                raise RequestError(INVALID_REQUEST, text)

    def _session(self, token: str | None, api_key: str | None = None) -> tuple[str, str | None]:
        """Who asks, and by which token: its own, or the one that its API key has got.

        Raises:
            RequestError: AUTHENTICATION_FAILED.
        """
        try:
            session = token
            if token is None and api_key is not None:
                session = self._log_in(api_key)
            principal = self._context.sessions.principal_of(session)
        except RequestError as error:
            raise RequestError(AUTHENTICATION_FAILED, error.text) from None
        if session is not None:
            self._proof = (token, api_key)
        return principal, session

    def _log_in(self, api_key: str) -> str:
        """The token of a key that requests carry themselves: one login, until its time is over."""
        sessions, (known, token) = self._context.sessions, self._login
        if known == api_key:
            with suppress(RequestError):
                sessions.principal_of(token)
                return token
        token = sessions.log_in_with_key(api_key, self._link.info.remote).text
        self._login = api_key, token
        return token

    def _relay(self, stream_id: str, partition: int) -> Cell:
        if is_key_stream(stream_id):
            return self._context.key_exchange
        return self._context.relays.cell(stream_id, partition)

    def _refuse(self, error: RequestError, request_id: RequestId | None) -> None:
        self._context.counters[error.code] += 1
        self._outlet.refuse(error, request_id)

    # Publishing ------------------------------------------------------------------------------

    def _publish(self, request: PublishRequest) -> None:
        message = request.message
        check_encryption(message, names_keys=self._names_keys)
        principal = ""
        if message.signature_type == SignatureType.NONE:
            # The signature of a signed message says who publishes it, whatever the token.
            principal, _ = self._session(request.session_token, request.api_key)
        elif request.api_key is not None:
            # It may still prove who asks for a resend later.
            with suppress(RequestError):
                self._session(request.session_token, request.api_key)
        publication = Publication(message, request.message_text, principal, request.request_id)
        stream_id, partition = message.id.stream_id, message.id.partition
        if not is_key_stream(stream_id):
            check_permission(publication, self._context.streams.access)
        self._publications.setdefault((stream_id, partition), []).append(publication)

    def _hand_on(self) -> None:
        """Hand what this turn has published to the relays."""
        publications, self._publications = self._publications, {}
        for (stream_id, partition), some in publications.items():
            self._publishing += len(some)
            self._publishing_bytes += _size(some)
            publish = Publish(some, self.address)
            self.system.post(self._relay(stream_id, partition), publish)

    def _published(self, done: Published) -> None:
        self._publishing -= len(done.request.publications)
        self._publishing_bytes -= _size(done.request.publications)
        for publication, error in done.refused:
            self._refuse(error, publication.request_id)
        self._soon()

    # Subscribing and resending ---------------------------------------------------------------

    def _subscribe(self, request: SubscribeRequest) -> None:
        stream_id, partition = request.stream_id, request.partition
        principal, token = self._session(request.session_token, request.api_key)
        open_to_all = is_key_stream(stream_id)
        access, sessions = self._context.streams.access, self._context.sessions
        if not open_to_all and not may(access, principal, "subscribe", stream_id):
            raise _not_allowed(stream_id)
        if len(self._subscribed) >= STREAMR_SUBSCRIPTIONS_PER_LINK_MAX:
            raise RequestError(INVALID_REQUEST, "This connection has too many subscriptions")
        self._forget((stream_id, partition))
        watched = () if open_to_all else (stream_id, *sessions.keys_of(token))
        for key in watched:
            access.rights.watch(key, self.address)
        subscribe = Subscribe(self._outlet, stream_id, partition, request.request_id, self.address)
        self._subscribed[stream_id, partition] = _Subscription(principal, token, subscribe, watched)
        self.system.post(self._relay(stream_id, partition), subscribe)

    def _unsubscribe(self, request: UnsubscribeRequest) -> None:
        stream_id, partition = request.stream_id, request.partition
        if (stream_id, partition) not in self._subscribed:
            text = f"Not subscribed to stream {stream_id} partition {partition}!"
            raise RequestError(INVALID_REQUEST, text)
        self._forget((stream_id, partition))
        unsubscribe = Unsubscribe(self._outlet, stream_id, partition, request.request_id)
        self.system.post(self._relay(stream_id, partition), unsubscribe)

    def _failed(self, request: Subscribe) -> None:
        """Nothing came of a request; what a later one has subscribed to stays."""
        name = request.stream_id, request.partition
        subscription = self._subscribed.get(name)
        if subscription is not None and subscription.request is request:
            self._forget(name)

    def _forget(self, name: PartitionName) -> None:
        """A subscription is over; harmless where there is none."""
        subscription = self._subscribed.pop(name, None)
        if subscription is None:
            return
        subscription.request.over = True
        for key in subscription.watched:
            self._context.streams.access.rights.unwatch(key, self.address)

    def _revoke(self, key: Key | None) -> None:
        """End the subscriptions that rest on a right which has ended; `key` is what it rests on."""
        access, sessions = self._context.streams.access, self._context.sessions
        # Of thousands of subscriptions, a change mostly concerns a few.
        concerned = [
            (name, one)
            for name, one in self._subscribed.items()
            if (one.watched if key is None else key in one.watched)
        ]
        for name, one in concerned:
            stream_id, _ = name
            if not (
                may(access, one.principal, "subscribe", stream_id) and sessions.stands(one.token)
            ):
                self._end(name, one, _not_allowed(stream_id).text)

    def _end(self, name: PartitionName, subscription: _Subscription, why: str) -> None:
        """End a subscription, and tell its client, who has not asked for that."""
        if self._subscribed.get(name) is not subscription:
            return
        self._forget(name)
        request = subscription.request
        request.answered = True  # if it was not: by the error that follows
        error = RequestError(PERMISSION_DENIED, why)
        revoked = Revoked(self._outlet, *name, request.request_id, error)
        self.system.post(self._relay(*name), revoked)

    def _resend(self, request: AnyResendRequest) -> None:
        if isinstance(request, ResendRequest):
            # It has no room for a key or token: what the connection has proved before counts.
            session = self._session(*self._proof)
        else:
            session = self._session(request.session_token)
        query = resend_query(request, *session)
        answer = ResendAnswer(self._outlet, request)
        if self._room is None:
            streams = self._context.streams
            self._room = Room(streams.store, self._link, streams.clock.call_later)
        me = self.address
        self._resends.add(spawn_resend(self._context, query, answer, parent=me, room=self._room))


_RESENDS: Final = (ResendLastRequest, ResendFromRequest, ResendRangeRequest, ResendRequest)


def _not_allowed(stream_id: str) -> RequestError:
    return RequestError(PERMISSION_DENIED, f"You are not allowed to subscribe to {stream_id}")


def _size(publications: Sequence[Publication]) -> int:
    return sum(len(publication.text or b"") for publication in publications)
