"""The actor of one peer: messages wait for a link, which is dialled, kept or renewed.

It knows neither sockets nor dialects. A link that has opened gets a connection actor, as one that
was accepted; messages go on to that one, which takes the first hop off their onward route. Where
peers may have one link only, the dialer may give one that was accepted instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Protocol, assert_never

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.links.connection import ConnectionEvents, PeerContext
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Dialling, Link, TimerHandle
from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import (
    LINK_BUFFER_HIGH_BYTES,
    PEER_WAITING_BYTES_MAX,
    PEER_WAITING_MESSAGES_MAX,
)
from rillnode.codecs.routing.routes import WireMessage

logger = event_logger("rillnode.actors.core.links.dialling")

BACKOFF_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Pauses after one, two and more failures in a row, each give or take a half."""

PATIENCE_SECONDS: Final = 1.0
"""Messages wait for the end of a pause up to this; in a longer one they fail at once."""

STEADY_SECONDS: Final = 1.0
"""A link that was open for less counts as a failure to open one. Not so where links are made on
demand and the peer has said something: some nodes answer and close."""

FORGET_SECONDS: Final = 60.0
"""How long an address that nobody configured is remembered after its link was last of use."""

_MESSAGE_BYTES: Final = 256
_HOP_BYTES: Final = 64
"""What a waiting message and each of its hops count for beside what they say."""

State = Literal["idle", "dialling", "open", "failed", "stopped"]


class PeerDialer(Protocol):
    """Opens links to one peer; a `Dialer` is one."""

    def __call__(
        self, events: "DialledEvents", on_failure: Callable[[RillnodeError], None], /
    ) -> Dialling:
        """Begin to open a link; `events.link_opened`, `link_shared` or `on_failure` follows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """The fixed settings of a peer.

    Attributes:
        name: what people call it.
        prefix: begins the local addresses of its connections.
        dial: opens links to it.
        kept: a link is kept open at all times, not only while it is used.
        may_dial: whether links may still be opened; once not, never again.
        on_end: called when the actor has ended by itself; None: it never does.
        on_gone: called when an instance of the actor goes, for whatever reason.
    """

    name: str
    prefix: bytes
    dial: PeerDialer
    kept: bool
    may_dial: Callable[[], bool] = lambda: True
    on_end: Callable[[], None] | None = None
    on_gone: Callable[[], None] | None = None


@dataclass(slots=True)
class PeerStatus:
    """A peer's state, for people.

    Attributes:
        address: `host:port`.
        speaks: `noise`, or the dialect of Ockam's TCP.
        state: `failed` until the pause after a failure is over.
        links: links that are open.
        waiting: messages that wait for a link.
        last_error: why the last attempt failed or the last link was lost.
        unreached: whether the last attempt failed, however long ago that was.
    """

    address: str
    speaks: str
    state: State = "idle"
    links: int = 0
    waiting: int = 0
    last_error: str = ""
    unreached: bool = False


@dataclass(frozen=True, slots=True)
class StopPeer:
    """`may_dial` says no now: give up what is being dialled; an open link stays."""


@dataclass(frozen=True, slots=True)
class Opened:
    """There is a link to the peer.

    Attributes:
        events: the attempt that it comes of.
        connection: its actor.
        shared: the peer has made it: it ends without this actor.
    """

    events: "DialledEvents"
    connection: Cell
    link: Link
    shared: bool

    def discard(self) -> None:
        """Nobody wants the link: end it, unless it is the peer's own."""
        if not self.shared:
            self.connection.base.exit(self.connection)


@dataclass(frozen=True, slots=True)
class _Drained:
    """The peer has taken what was buffered for it."""

    def merged(self, later: "_Drained") -> "_Drained":
        """One is enough."""
        return later


@dataclass(frozen=True, slots=True)
class _Lost:
    connection: Cell
    reason: str
    heard: bool


@dataclass(frozen=True, slots=True)
class _Failed:
    events: "DialledEvents"
    error: RillnodeError


@dataclass(frozen=True, slots=True)
class _PauseOver:
    """The pause after a failure is over."""


@dataclass(frozen=True, slots=True)
class _Forget:
    """Nobody has used the peer for a while."""


PeerMessage = Delivery | Opened | _Drained | _Lost | _Failed | _PauseOver | StopPeer | _Forget
"""What a peer's actor takes."""


class DialledEvents(ConnectionEvents):
    """The events of a dialled link, told to the peer's actor too."""

    __slots__ = ("_heard", "_peer", "_shared")

    def __init__(self, context: PeerContext, *, prefix: bytes, peer: Cell) -> None:
        super().__init__(context, prefix=prefix)
        self._peer = peer
        self._heard = False
        self._shared: Cell | None = None

    def link_opened(self, link: Link) -> None:
        """Make the link's actor; the peer's actor has it now."""
        super().link_opened(link)
        if self._cell is not None:
            self._system.post(self._peer, Opened(self, self._cell, link, shared=False))

    def link_shared(self, connection: Cell, link: Link) -> None:
        """The peer has made a link itself: its connection is used, and ends without this one."""
        self._shared, self._heard = connection, True
        self._system.post(self._peer, Opened(self, connection, link, shared=True))

    def messages_received(self, messages: list[bytes]) -> None:
        """Hand the messages of one read to the link's actor."""
        self._heard = True
        super().messages_received(messages)

    def link_drained(self) -> None:
        """The peer took what was buffered."""
        super().link_drained()
        self._system.post(self._peer, _Drained())

    def link_closed(self, reason: str) -> None:
        """The link is gone."""
        super().link_closed(reason)
        connection = self._cell or self._shared
        if connection is not None:
            self._system.post(self._peer, _Lost(connection, reason, self._heard))


class AcceptedEvents(ConnectionEvents):
    """The events of an accepted link that may stand in for one to be dialled."""

    __slots__ = ("_user",)

    def __init__(self, context: PeerContext, *, prefix: bytes) -> None:
        super().__init__(context, prefix=prefix)
        self._user: DialledEvents | None = None

    def share(self, user: DialledEvents) -> None:
        """Let the actor of the peer use the open link, instead of who did before."""
        assert self._cell is not None, "there is a connection once the link is open"
        assert self._link is not None, "likewise"
        self._user = user
        user.link_shared(self._cell, self._link)

    def link_drained(self) -> None:
        """The peer took what was buffered."""
        super().link_drained()
        if self._user is not None:
            self._user.link_drained()

    def link_closed(self, reason: str) -> None:
        """The link is gone."""
        super().link_closed(reason)
        if self._user is not None:
            self._user.link_closed(reason)


class PeerActor(Worker):
    """A configured peer, at `peer/<name>`, or an address that is dialled.

    Messages go out in the order in which they came. Those that come while there is no link, or
    while the peer does not take what it was sent, wait within bounds, and count for the origin as
    answers in preparation do: who sends too much is read no more. A failure to open a link fails
    them all. A pause follows, so that a dead peer is not dialled for each message; if it is long,
    messages that come in it fail too.
    """

    # There is one attempt at a time; what comes of the one before may still be on its way.
    spare: ClassVar = {StopPeer: 1, _Failed: 2, _Lost: 2}

    def __init__(self, context: PeerContext, settings: PeerSettings, status: PeerStatus) -> None:
        self._context = context
        self._settings = settings
        self._status = status
        self._waiting: list[tuple[Delivery, int]] = []
        self._waiting_bytes = 0
        self._connection: Cell | None = None
        self._link: Link | None = None
        self._shared = False
        # What comes of another attempt, as of an instance before this one, is not waited for.
        self._attempt: tuple[DialledEvents, Dialling | None] | None = None
        self._timer: TimerHandle | None = None
        self._opened_at = 0.0
        self._failures = 0
        self._impatient = False  # in a long pause
        self._reason = ""

    def started(self) -> None:
        """A peer to be kept is dialled at once."""
        self.system.outcomes[Opened] = _lost_to_its_peer
        self._rest()

    def handle(self, message: PeerMessage, sender: Cell | None) -> None:
        """Take messages for the peer, and what becomes of its links."""
        match message:
            case Delivery():
                self._take(message)
            case Opened(events=events):
                if self._awaits(events):
                    self._opened(message)
                else:
                    message.discard()
            case _Drained():
                self._send_waiting()
            case _Lost(connection=connection):
                if connection is self._connection:
                    self._lost(message)
            case _Failed(events=events, error=error):
                if self._awaits(events):
                    self._attempt = None
                    self._failed(error)
            case _PauseOver():
                if self._status.state == "failed":
                    self._rest()
            case StopPeer():
                self._stop("the node is stopping")
            case _Forget():
                self._forget()
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Give up what is being dialled and what waits; end the link with the actor."""
        if self._connection is not None:
            if not self._shared:
                self.system.exit(self._connection)
            self._connection = self._link = None
            self._status.links = 0
        self._stop("its actor has ended")
        if self._settings.on_gone is not None:
            self._settings.on_gone()

    def described(self, address: bytes) -> Described:
        """The peer, and how its link is."""
        kept = "stop its link, which is dialled again when it is needed"
        return Described("peer", self._settings.name, state=self._status.state, kept=kept)

    # Messages for the peer -------------------------------------------------------------------

    def _take(self, delivery: Delivery) -> None:
        if self._connection is not None and not self._connection.exited and self._drained:
            delivery.again()  # until the connection has handled it
            self.system.post(self._connection, delivery)
        elif self._connection is None and (self._impatient or not self._settings.may_dial()):
            self._refuse(delivery)
        else:
            self._hold(delivery)

    @property
    def _drained(self) -> bool:
        """Whether nothing is in the way of a message, should there be a link."""
        buffered = 0 if self._link is None else self._link.buffered_bytes
        return not self._waiting and buffered <= LINK_BUFFER_HIGH_BYTES

    def _hold(self, delivery: Delivery) -> None:
        count, size = len(delivery.messages), sum(map(_size, delivery.messages))
        if (
            self._status.waiting + count > PEER_WAITING_MESSAGES_MAX
            or self._waiting_bytes + size > PEER_WAITING_BYTES_MAX
        ):
            text = f"Too much is waiting for {self._settings.name}"
            error = RequestError("peer.busy", text)
            self._context.router.undeliverable("peer_busy", delivery, error)
            return
        self._waiting.append((delivery, size))
        self._waiting_bytes += size
        self._status.waiting += count
        delivery.origin.account.reserved_bytes += size
        if self._status.state == "idle":
            self._dial()

    def _refuse(self, delivery: Delivery) -> None:
        text = f"No link to {self._settings.name}: {self._reason}"
        error = RequestError("peer.unreachable", text)
        self._context.router.undeliverable("peer_unreachable", delivery, error)

    def _take_waiting(self) -> list[Delivery]:
        """Take what waits; all of it has been handled once, so that nobody waits for it twice."""
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = self._status.waiting = 0
        for delivery, size in waiting:
            delivery.origin.account.reserved_bytes -= size
        return [Delivery(delivery.origin, delivery.messages) for delivery, _ in waiting]

    def _send_waiting(self) -> None:
        if self._connection is not None and not self._connection.exited:
            for delivery in self._take_waiting():
                self.system.post(self._connection, delivery)

    # Links -----------------------------------------------------------------------------------

    def _dial(self) -> None:
        self._set_timer(None)
        self._status.state = "dialling"
        peer, post = self.address, self.system.post
        events = DialledEvents(self._context, prefix=self._settings.prefix, peer=peer)
        self._attempt = events, None
        try:
            dialling = self._settings.dial(events, lambda error: post(peer, _Failed(events, error)))
        except RillnodeError as error:  # it is no address at all
            self._attempt = None
            self._failed(error)
        else:
            self._attempt = events, dialling

    def _awaits(self, events: DialledEvents) -> bool:
        return self._attempt is not None and self._attempt[0] is events

    def _opened(self, opened: Opened) -> None:
        self._attempt = None
        self._connection, self._link = opened.connection, opened.link
        self._shared = opened.shared
        self._opened_at = self.system.timing.monotonic()
        self._status.links = 1
        self._status.state, self._status.unreached = "open", False
        self._send_waiting()

    def _lost(self, lost: _Lost) -> None:
        self._connection = self._link = None
        self._status.links = 0
        if not self._settings.may_dial():
            self._stop("the node is stopping")
            return
        kept, open_seconds = self._settings.kept, self.system.timing.monotonic() - self._opened_at
        if open_seconds < STEADY_SECONDS and (kept or not lost.heard):
            self._failed(TransportError("link.closed", f"closed at once: {lost.reason}"))
            return
        self._failures = 0
        if kept:
            self._status.last_error = lost.reason
        self._rest()

    def _failed(self, error: RillnodeError) -> None:
        """Fail all that waits, and pause: the longest time where it needs somebody to act."""
        last = len(BACKOFF_SECONDS) - 1
        pause = BACKOFF_SECONDS[min(self._failures, last) if error.retryable else last]
        self._failures += 1
        self._impatient = pause > PATIENCE_SECONDS
        self._reason = error.text
        self._status.state, self._status.last_error = "failed", str(error)
        self._status.unreached = True
        logger.warning(
            "peer_unreachable",
            extra={"peer": self._settings.name, "code": error.code, "failures": self._failures},
        )
        for delivery in self._take_waiting():
            self._refuse(delivery)
        jitter = 0.5 + self._context.entropy(1)[0] / 255
        self._set_timer(self.wake_after(pause * jitter, _PauseOver()))

    def _rest(self) -> None:
        """There is no link and no reason against one: dial if one is wanted."""
        self._impatient = False
        if not self._settings.may_dial():
            self._stop("the node is stopping")
            return
        if self._settings.kept or self._waiting:
            self._dial()
            return
        self._status.state = "idle"
        forget = self._settings.on_end is not None
        self._set_timer(self.wake_after(FORGET_SECONDS, _Forget()) if forget else None)

    def _forget(self) -> None:
        if self._status.state == "idle" and self._settings.on_end is not None:
            self._settings.on_end()
            self.system.exit(self.address)

    def _stop(self, reason: str) -> None:
        """Give up what is being dialled, and what waits for it."""
        self._reason = reason
        if self._connection is None:
            self._status.state = "stopped"
        self._set_timer(None)
        if self._attempt is not None and self._attempt[1] is not None:
            self._attempt[1].cancel()
        self._attempt = None
        for delivery in self._take_waiting():
            self._refuse(delivery)

    def _set_timer(self, timer: TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


def _lost_to_its_peer(opened: Opened, _: RillnodeError) -> None:
    opened.discard()


def _size(message: WireMessage) -> int:
    """About what a message costs while it waits, in bytes."""
    hops = (*message.onward_route, *message.return_route)
    return len(message.payload) + _MESSAGE_BYTES + sum(len(hop.value) + _HOP_BYTES for hop in hops)
