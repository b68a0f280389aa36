"""The connection actor: one client's WebSocket, from its opening to its end.

A client's requests are carried out one after the other, each answered before the next is looked at,
and nothing is read from it meanwhile; only events that it publishes one after the other need not
wait for each other: they reach their topics in this order, in which they are answered, too. What
others publish is forwarded to it in between.
"""

from collections import deque
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Protocol, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.core.links.connection import Drain
from rillnode.actors.core.links.link_actor import (
    HELD_READS_MAX,
    Closed,
    LinkActorEvents,
    Received,
    link_address,
    link_named,
    nobody,
)
from rillnode.actors.core.links.tracing import Kind
from rillnode.actors.core.streams.context import parse_stream_address, stream_address
from rillnode.actors.engine.described import Described
from rillnode.actors.nextgraph.actor import BrokerActor, logged
from rillnode.actors.nextgraph.admission import RequestChecks
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.external import answer_external
from rillnode.actors.nextgraph.inbox import Pop
from rillnode.actors.nextgraph.names import topic_of
from rillnode.actors.nextgraph.reader import ANSWERS_MAX, CatchUp
from rillnode.actors.nextgraph.session import (
    Answer,
    Asked,
    Forwarded,
    Gone,
    Refusal,
    Session,
)
from rillnode.actors.nextgraph.users import Administration, Admission, Expelled
from rillnode.actors.ports import Link, TimerHandle
from rillnode.codecs.errors import CodecError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import (
    HANDSHAKE_SECONDS_MAX,
    LINK_BUFFER_HIGH_BYTES,
    STORE_PENDING_HIGH_BYTES,
)
from rillnode.codecs.nextgraph.admin import AdminRequest
from rillnode.codecs.nextgraph.broker_dialogue import (
    NONCE_BYTES,
    PROBE_CLOSE_SECONDS,
    BrokerDialogue,
    FromClient,
)
from rillnode.codecs.nextgraph.client import ClientEvent, ClientMessage
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.external import ExtRequest, WalletGetExport
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import (
    ClientRequest,
    InboxPost,
    InboxRegister,
    WalletPutExport,
)
from rillnode.codecs.nextgraph.responses import ClientResponse
from rillnode.codecs.nextgraph.results import (
    NORMAL_CLOSE,
    NetCode,
    NextGraphError,
    ProtocolCode,
    ResultCode,
)
from rillnode.codecs.nextgraph.start import AppHello, ClientAuth, Probe
from rillnode.codecs.nextgraph.types import (
    KEY_BYTES,
    NIL_OVERLAY,
    InnerOverlay,
    OuterOverlay,
    OverlayId,
)

logger = event_logger("rillnode.actors.nextgraph.connection")

HOLD_SECONDS: Final = 0.005
"""How often a connection that waits looks whether it may go on."""

EVENTS_MAX: Final = 16
EVENTS_BYTES_MAX: Final = 262_144
"""So many events that a client publishes are under way at a time, and of so many bytes: they share
a sync. The last one may go beyond."""

GOING_AWAY: Final = 1_001
"""WebSocket close code of a broker that stops."""


class ClosingLink(Link, Protocol):
    """A link that can say why it is closed."""

    def close(self, reason: str, code: int = NORMAL_CLOSE) -> None:
        """Close with a WebSocket close code after what is buffered was written."""
        ...


@dataclass(frozen=True, slots=True)
class _Continue:
    """Time to look whether the connection may go on."""


@dataclass(frozen=True, slots=True)
class _Close:
    """Time to close."""

    code: ProtocolCode


Message = Received | Closed | Answer | Forwarded | CatchUp | Expelled | Drain | _Continue | _Close


class BrokerEvents(LinkActorEvents[ClosingLink]):
    """The events of one WebSocket."""

    __slots__ = ()

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(
            context.streams.system, lambda link: partial(ConnectionActor, context, link)
        )

    def kind_of(self, link: ClosingLink) -> Kind:
        """What all are in a trace: they are encrypted to the actor that holds the keys."""
        return lambda _: "record"


class ConnectionActor(BrokerActor):
    """The connection of a NextGraph client."""

    # A client has one question at a time, or a few events, and what answers in many parts waits
    # for CatchUp.
    spare: ClassVar = {Received: HELD_READS_MAX, Answer: ANSWERS_MAX, Drain: 1, Closed: 1}
    on_failure = "stop"
    has_parts = True

    def __init__(self, context: BrokerContext, link: ClosingLink) -> None:
        super().__init__(context)
        self._link = link
        entropy = context.streams.entropy
        self._dialogue = BrokerDialogue(
            context.peer,
            nonce=entropy(NONCE_BYTES),
            discoverable=context.discoverable,
            ephemeral=entropy(KEY_BYTES),
        )
        self._own_address = b""
        self._made_at = 0.0
        self._frames: deque[bytes] = deque()
        self._user: bytes | None = None
        self._session: Session | None = None
        self._checks: RequestChecks
        # Whether something is under way that all else waits for; else there may be events, of which
        # these are the sizes, by their requests' ids, and the answers that others are sent before.
        self._asked = False
        self._events: dict[int, int] = {}
        self._answers: dict[int, Answer] = {}
        # What was read, or what is wrong with it, and its size; it waits for the events before it.
        self._next: tuple[FromClient | CodecError, int] | None = None
        self._ended = False
        self._draining = False
        self._patient = False
        self._opening: TimerHandle | None = None
        self._held: TimerHandle | None = None

    def started(self) -> None:
        """Take an address, and give the client its time to come in."""
        streams = self._context.streams
        self._made_at = self.system.timing.monotonic()
        self._own_address = link_address(b"NG_", streams.clock, self._context.numbers)
        streams.router.register(self._own_address, self.address, nobody)
        self._context.connections.add(self.address)
        late = _Close(ProtocolCode.TIMEOUT)
        self._opening = self.wake_after(HANDSHAKE_SECONDS_MAX, late)

    def handle(self, message: Message, sender: ActorAddress | None) -> None:
        """Take frames from the link, what its client is to have, and its end."""
        match message:
            case Answer():
                self._answer(message)
            case Forwarded(plaintext=plaintext):
                if self._session is not None and not self._ended:
                    self._link.send([self._dialogue.seal(plaintext)])
            case Received(frames=frames):
                self._frames.extend(frames)
                self._go_on()
            case _Continue():
                self._held = None
                self._go_on()
            case CatchUp():
                if sender is not None:
                    self.send(sender, None)
            case Drain():
                self._draining = True
                if self._patient:  # it may be minutes until somebody leaves a wallet for it
                    self._end("the node is stopping", GOING_AWAY)
                else:
                    self._go_on()
            case _Close(code=code):
                self._close(code)
            case Expelled(users=users):
                if self._user in users:
                    self._close(ProtocolCode.ACCESS_DENIED)
            case Closed(reason=reason):
                logger.info("link_closed", extra={**link_named(self._link), "reason": reason})
                if self._session is not None:
                    self._session.open = False
                self.system.exit(self.address)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Tell all who keep something for the connection."""
        self._ended = True
        self._context.connections.discard(self.address)
        self._context.streams.router.unregister(self._own_address)
        session = self._session
        if session is not None:
            session.open = False
            self._context.sessions.discard(session)
            for cell in tuple(session.attached):
                self.system.post(cell, Gone(session))
        self._link.close("the connection ended", GOING_AWAY)

    def described(self, address: bytes) -> Described | None:
        """The connection, or a topic that its client follows, which has no actor for that alone."""
        own, session = self._own_address, self._session
        owner = "" if session is None else session.principal
        if address == own:
            return Described(
                "link",
                name=f"nextgraph {self._link.info.remote}",
                owner=owner,
                made_at=self._made_at,
                open_to="owner",
                stop=partial(self._end, "it was stopped at its address", GOING_AWAY),
            )
        name = parse_stream_address(address[len(own) + 1 :])
        key = None if name is None else topic_of(name[0])
        topic = None if key is None else self._context.topics.find(key)
        lodger: Any = None if topic is None else topic.instance
        if name is None or session is None or lodger is None or not lodger.followed_by(session):
            return None
        return Described(
            "subscription",
            name=name[0],
            owner=owner,
            made_at=self._made_at,
            open_to="owner",
            kept="its protocol has no word for that: stop its link",
            parent=own,
        )

    def parts(self) -> Iterator[bytes]:
        """The addresses of the topics that its client follows."""
        session = self._session
        for cell in () if session is None else tuple(session.attached):
            lodger: Any = cell.instance
            name = "" if session is None or lodger is None else lodger.followed_by(session)
            if name:
                yield b"%s/%s" % (self._own_address, stream_address(name, 0))

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
        under_way = self._asked or self._next is not None or bool(self._events or self._frames)
        return under_way and not self._ended

    # Frames ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Take frames until one must be waited for."""
        while not (self._asked or self._ended):
            if self._next is None:
                if not self._frames or self._is_full():
                    break
                if self._must_wait():
                    self._hold()
                    return
                self._next = self._receive(self._frames.popleft())
            elif not self._take(*self._next):
                break
        if self._draining and not (self._asked or self._next is not None or self._events):
            self._end("the node is stopping", GOING_AWAY)
        elif self._draining or self._asked or self._next is not None or self._is_full():
            self._link.pause_reading()
        else:
            self._link.resume_reading()

    def _is_full(self) -> bool:
        """Whether so many events are under way that no more are looked at."""
        events = self._events
        return len(events) >= EVENTS_MAX or sum(events.values()) >= EVENTS_BYTES_MAX

    def _must_wait(self) -> bool:
        """Whether the client has much to take still, or the store much to write."""
        return (
            self._link.buffered_bytes > LINK_BUFFER_HIGH_BYTES
            or self._context.streams.store.pending_bytes > STORE_PENDING_HIGH_BYTES
        )

    def _hold(self) -> None:
        self._link.pause_reading()
        if self._held is None:
            self._held = self.wake_after(HOLD_SECONDS, _Continue())

    def _receive(self, frame: bytes) -> tuple[FromClient | CodecError, int] | None:
        """What a frame says, if that is not for the dialogue alone."""
        said: FromClient | CodecError | None
        try:
            said = self._dialogue.receive(frame)
        except CodecError as error:
            said = error
        self._flush()
        return None if said is None else (said, len(frame))

    def _take(self, said: FromClient | CodecError, size: int) -> bool:
        """Act on what is next, if it need not wait for the events before it; else False."""
        event = self._event_in(said)
        if self._events and event is None:
            return False
        self._next = None
        try:
            if isinstance(said, CodecError):
                raise said
            if event is not None:
                self._events[event.id] = size
            self._act(said)
        except CodecError as error:
            if event is not None:
                del self._events[event.id]
            if self._events:
                self._next = error, size
                return False
            self._broken(error)
        return True

    def _event_in(self, said: FromClient | CodecError) -> ClientRequest | None:
        """The request, if it publishes an event and no event under way has its number."""
        if isinstance(said, ClientMessage) and isinstance(said.content, ClientRequest):
            request = said.content
            if isinstance(request.content, Event) and request.id not in self._events:
                return request
        return None

    def _broken(self, error: CodecError) -> None:
        """Close, as what the client has sent is none of the protocol."""
        self._context.counters[error.code] += 1
        if isinstance(error, NextGraphError):
            logger.info("client_broke_protocol", extra={"code": error.code, "reason": error.text})
            self._close(error.closing)
        else:
            self._close(NetCode.SERIALIZATION_ERROR)

    def _flush(self) -> None:
        frames = self._dialogue.take_output()
        if frames:
            self._link.send(frames)

    def _close(self, closing: ProtocolCode | NetCode) -> None:
        self._end(closing.reason, closing.close_code)

    def _end(self, reason: str, code: int) -> None:
        self._ended = True
        self._frames.clear()
        self._next = None
        self._link.close(reason, code)

    # What clients say ------------------------------------------------------------------------

    def _act(self, said: FromClient) -> None:
        if self._session is None and self._opening is not None:
            self._opening.cancel()  # it has said what it wants
        match said:
            case ClientMessage(overlay=overlay, content=ClientRequest() as request):
                self._request(overlay, request)
            case ClientMessage(content=ClientEvent()):
                if self._session is not None:
                    self._do(self._pop(self._session))
            case ClientAuth():
                self._do(self._admit(said))
            case AdminRequest():
                self._do(self._administer(said))
            case ExtRequest(content=content):
                self._patient = isinstance(content, WalletGetExport) and content.is_rendezvous
                self._do(self._external(said))
            case AppHello():
                # An app needs a verifier, and this broker runs none.
                self._refuse(ProtocolCode.ACCESS_DENIED)
            case Probe():
                self.wake_after(PROBE_CLOSE_SECONDS, _Close(ProtocolCode.NO_ERROR))
            case _:
                raise NextGraphError(ProtocolCode.INVALID_STATE, "this is not expected here")

    def _request(self, overlay: OverlayId, request: ClientRequest) -> None:
        session, content = self._session, request.content
        assert session is not None
        asked = Asked(session, request.id, overlay, content)
        self._asked = request.id not in self._events
        try:
            asked.stored = self._checks.check(overlay, content)
        except Refusal as refusal:
            asked.refuse(refusal.result)
            return
        match content:
            case InboxRegister() | InboxPost():
                target = self._context.inboxes
            case WalletPutExport() if overlay == NIL_OVERLAY or isinstance(overlay, InnerOverlay):
                target = self._context.wallets
            case _ if isinstance(overlay, InnerOverlay):
                target = self._context.overlays.cell(overlay.id)
            case _ if isinstance(overlay, OuterOverlay):
                target = self._context.outers.cell(overlay.id)
            case _:
                asked.refuse(ResultCode.OVERLAY_MISMATCH)
                return
        self.system.post(target, asked)

    def _answer(self, answer: Answer) -> None:
        if self._ended:
            return
        if answer.id not in self._events:
            self._send(answer)
            if answer.result is not ResultCode.PARTIAL_CONTENT:
                self._asked = False
                self._go_on()
            return
        answers = self._answers
        answers[answer.id] = answer
        while self._events and (first := next(iter(self._events))) in answers:
            del self._events[first]
            self._send(answers.pop(first))
        self._go_on()

    def _send(self, answer: Answer) -> None:
        response = ClientResponse(answer.id, answer.result, answer.content)
        plaintext = encode_message(ClientMessage(NIL_OVERLAY, response, answer.padding))
        self._link.send([self._dialogue.seal(plaintext)])

    # Coming in -------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out what is no client's request; nothing else is looked at meanwhile."""
        self._asked = True
        self.begin(self._done(work), self._fail)

    async def _done(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        self._asked = False
        self._go_on()

    def _fail(self, error: RillnodeError) -> None:
        if not self._ended:
            logged(error)
            self._close(ProtocolCode.STORAGE_ERROR)

    async def _pop(self, session: Session) -> None:
        """Have a letter sent; where that cannot be done, nobody is told."""
        try:
            await self.question(self._context.inboxes, Pop(session))
        except RillnodeError as error:
            logged(error)

    async def _admit(self, auth: ClientAuth) -> None:
        user = self._user = auth.content.user
        admission = Admission(user, auth.content.registration)
        code = await self.question(self._context.users, admission)
        if self._ended:
            return
        if code is not ProtocolCode.NO_ERROR:
            self._refuse(code)
            return
        static = self._dialogue.remote_static
        assert static is not None
        self._checks = RequestChecks(self._context.peer.public_key, static)
        self._session = Session(user, self.address, self._link)
        self._context.sessions.add(self._session)
        self._dialogue.admit()
        self._flush()
        logger.info("client_admitted", extra={"remote": self._link.info.remote})

    def _refuse(self, code: ProtocolCode) -> None:
        self._context.counters[f"refused.{code.name.lower()}"] += 1
        self._dialogue.refuse(code)
        self._flush()
        self._close(code)

    async def _administer(self, request: AdminRequest) -> None:
        response = await self.question(self._context.users, Administration(request))
        self._dialogue.answer(response)
        self._flush()
        self._close(ProtocolCode.NO_ERROR)

    async def _external(self, request: ExtRequest) -> None:
        response = await answer_external(self, self._context.wallets, request)
        self._dialogue.answer(response)
        self._flush()
        self._close(ProtocolCode.NO_ERROR)
