"""A session: requests and subscriptions to one node, kept alive over links that come and go.

There is one rule for a lost link: whatever has no answer yet is asked again on the next. An append
whose confirm was lost is known by its numbers (see `appends`), and has the same answer once more.
What a node refuses because an actor of it is busy is asked again there (see `repeating`).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from random import Random
from typing import Final, Protocol, TypeVar
from weakref import WeakSet

from rillnode.actors.ports import Entropy
from rillnode.codecs import arguments, native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.routes import (
    Route,
    WireDecoder,
    encode_header,
    encode_with_header,
    local,
)
from rillnode.node.client.appends import Appends
from rillnode.node.client.messages import Messages, failure_of, fresh_address
from rillnode.node.client.repeating import PAUSE_SECONDS, Asked, OnResponse, Repeating
from rillnode.transports.clock import elapsed as machine_elapsed
from rillnode.transports.links import Link, LinkEvents

logger = event_logger("rillnode.node.client")

REQUEST_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 30.0

PRODUCER_BYTES: Final = 8
"""Random bytes of the id by which a session's appends are known: a log knows some thousand."""

Connect = Callable[[LinkEvents], Awaitable[object]]
"""Opens a link and tells `LinkEvents.link_opened` before it returns."""

Follow = Callable[[native.NodeAddress], Connect]
"""A way to a node that another one has named: it opens links if that proves its identity."""

OnDisconnect = Callable[[str], object]
"""Told that a link is lost, and why."""

OnReconnect = Callable[[], object]
"""Told that there is a link again."""

_AGAIN: Final = (
    native.BlocksResponse,
    native.FoundResponse,
    native.GroupResponse,
    native.JobsResponse,
    native.WatchStreamsResponse,
)
"""Answers that may still come when a subscription has ended."""

_OF_PARTITION: Final = (
    native.AppendRequest,
    native.OpenProducerRequest,
    native.ReadRequest,
    native.LocateRequest,
    native.SearchRequest,
    native.SettleRequest,
)
"""Requests that go to a partition's address: where one is sent elsewhere, all are."""


R = TypeVar("R")


class Subscriber(Protocol):
    """Takes what a request brings that is answered again and again, and can ask it anew."""

    def received(self, response: native.Response, route: Route) -> None:
        """Take an answer; `route` leads back to where it came from."""
        ...

    def resume(self) -> tuple[bytes, native.Request]:
        """Whom to ask, and the request that goes on where the last answer ended."""
        ...

    def link_lost(self) -> None:
        """Nothing comes until there is another link, over which it is asked anew."""
        ...

    def failed(self, error: RillnodeError) -> None:
        """The subscription is over."""
        ...


class Closing(Protocol):
    """A thing that ends with a session or client, and is closed by it."""

    async def close(self) -> None:
        """End it."""
        ...


class Session:
    """Talks to one node; all calls on the loop's thread.

    Args:
        connect: opens a link.
        reconnect: make new links when one is lost; else a lost link ends the session.
        entropy: source of random bytes.
        follow: goes to other nodes, where this one says that they serve what it does not; else
            that is the outcome.
        on_disconnect: told, with the reason, when a link is lost that the session still needs.
        on_reconnect: told when there is a link again.
        name: of the node, for people.
        elapsed: seconds that never go back, and that pass while the machine sleeps, too.

    Attributes:
        appends: what is appended to streams.
        messages: messages to any worker, beside the requests that the node itself answers.
        unasked: answers to what nobody waits for: no more than `unanswered`, from a node that
            answers each request once.
        unanswered: how many of these may come: one for a request that was given up, two for a
            subscription that was ended.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        reconnect: bool = True,
        entropy: Entropy = os.urandom,
        follow: Follow | None = None,
        on_disconnect: OnDisconnect | None = None,
        on_reconnect: OnReconnect | None = None,
        name: str = "",
        elapsed: Callable[[], float] = machine_elapsed,
    ) -> None:
        self.name = name
        self.elapsed = elapsed
        self._on_disconnect = on_disconnect
        self._on_reconnect = on_reconnect
        self._connect = connect
        self._reconnect = reconnect
        self._link: Link | None = None
        self._decoder = WireDecoder()
        self._ids = 0
        self._pending: dict[int, Asked] = {}
        self._repeating = Repeating(
            self._pending,
            fail=self._refuse,
            send=self._send,
            random=lambda: self._random,
        )
        self.unasked = self.unanswered = 0
        self._subscribers: dict[int, Subscriber] = {}
        self._headers: dict[Route, bytes] = {}
        # Nobody who is sent messages can guess it, and so answer in the node's place.
        self._own_route = (local(fresh_address(entropy)),)
        self._outgoing: list[bytes] = []
        self._gathering: list[Callable[[], None]] = []
        self._flush_posted = False
        self._closing = False
        self._error: RillnodeError | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._idle: asyncio.Event | None = None  # once closing
        self._chance = entropy(8)
        self.appends = Appends(self, entropy(PRODUCER_BYTES))
        self._entropy = entropy
        self._follow = follow
        # Sessions with other nodes, by what this one has said of them; and whose partitions'
        # addresses are asked there.
        self._others: dict[tuple[tuple[str, str], ...], _Other] = {}
        self._elsewhere: dict[bytes, _Other] = {}
        self._others_lost = 0
        self.messages = Messages(send=self._send_message, settled=self._settle, entropy=entropy)

    @property
    def connected(self) -> bool:
        """Whether a link is open now."""
        return self._link is not None

    @property
    def open_requests(self) -> frozenset[int]:
        """Ids of the requests that have no answer yet."""
        return frozenset(self._pending).union(*(one.open_requests for one in self._others.values()))

    @property
    def subscriptions_count(self) -> int:
        """How many subscriptions go on."""
        others = (one.subscriptions_count for one in self._others.values())
        return sum(others, len(self._subscribers))

    @cached_property
    def to_close(self) -> WeakSet[Closing]:
        """What asks the node for something when it is closed, and so is closed before the session.

        Made when needed, as sets take much memory.
        """
        return WeakSet()

    @cached_property
    def _random(self) -> Random:
        """Spreads attempts; made when the first link is lost, as few sessions need it."""
        return Random(self._chance)

    async def open(self) -> None:
        """Make the first link.

        Raises:
            TransportError, HandshakeError: the node is not reached, or refuses this identity.
        """
        try:
            await self._connect(self)
        except BaseException:
            # A link that was open already when its dialling was given up is not made again.
            self._fail(TransportError("client.closed", "the client has not been opened"))
            raise

    async def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Wait until every request is answered, then close; what is still open then fails.

        Cancelled, it closes at once.
        """
        try:
            if not self._closing:
                self._closing = True
                await self._answered(timeout_seconds)
        finally:
            self.give_up()

    async def _answered(self, seconds: float) -> None:
        idle = self._idle = asyncio.Event()
        self._ask_gathered()
        try:
            async with asyncio.timeout(seconds):
                while self._is_busy:
                    idle.clear()
                    await idle.wait()
        except TimeoutError:
            open_count = len(self.open_requests)
            logger.warning("closed_with_requests_open", extra={"requests": open_count})

    def give_up(self) -> None:
        """End at once: what is open fails."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._fail(closed_error())
        if self._link is not None:
            self._link.close("the client is done")

    # Requests --------------------------------------------------------------------------------

    def next_id(self) -> int:
        """A request id that this session has not used."""
        self._ids += 1
        return self._ids

    def ask(self, address: bytes, request: native.Request, on_response: OnResponse) -> None:
        """Send a request; `on_response` is called once, from the loop.

        Raises:
            RillnodeError: the session has ended.
        """
        if self._error is not None:
            raise self._error
        if self._elsewhere and (other := self._elsewhere.get(address)) is not None:
            other.ask(address, request, on_response)
            return
        frame = self._frame((local(address),), request)
        asked = Asked(frame, on_response, address, type(request))
        self._pending[request.request_id] = asked
        if not self._repeating.holds(asked):
            self._send(frame)

    async def request(
        self,
        address: bytes,
        request: native.Request,
        kind: type[R],
        *,
        seconds: float = REQUEST_SECONDS,
    ) -> R:
        """Send a request and wait for its answer, which is of that kind.

        Raises:
            RequestError: the node refused it; `client.answer`, its answer is of another kind.
            TransportError: no answer in time, or the session ended.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[native.Response] = loop.create_future()

        def on_response(response: native.Response | RillnodeError) -> None:
            if future.done():
                return
            if isinstance(response, RillnodeError):
                future.set_exception(response)
            else:
                future.set_result(response)

        def expire() -> None:
            asked = self._pending.get(request.request_id)
            if asked is not None and asked.refusal is not None:
                on_response(failure_of(asked.refusal))
                return
            text = f"the node has not answered in {seconds:.0f} s"
            on_response(TransportError("request.timeout", text))

        self.ask(address, request, on_response)
        timer = loop.call_later(seconds, expire)
        try:
            response = await future
        finally:
            timer.cancel()
            for session in (self, *self._others.values()):
                session.unanswered += session._forget(request.request_id) is not None
        if not isinstance(response, kind):
            raise unexpected_answer()
        return response

    def subscribe(self, subscription_id: int, subscriber: Subscriber) -> None:
        """Start a subscription; it goes on over lost links until `unsubscribe`.

        In a session that has ended it has failed already. What cannot be asked for is none: it
        would be asked for again on each link, and what comes behind it would not be.
        """
        if self._error is not None:
            subscriber.failed(self._error)
            return
        self._subscribers[subscription_id] = subscriber
        try:
            self._resume(subscriber)
        except BaseException:
            del self._subscribers[subscription_id]
            raise

    def unsubscribe(self, subscription_id: int, route: Route) -> None:
        """End a subscription; `route` is where its blocks came from, or leads to its stream."""
        holder = self._holder(subscription_id)
        if holder is not self:
            holder.unsubscribe(subscription_id, route)
        elif self._subscribers.pop(subscription_id, None) is not None:
            # Where the stream is removed meanwhile, both that and its lost address are told.
            self.unanswered += 2
            self.tell(route, native.UnsubscribeRequest(subscription_id))

    def drop(self, subscription_id: int) -> None:
        """Take nothing more for a subscription whose end its node learns otherwise."""
        holder = self._holder(subscription_id)
        if holder is not self:
            holder.drop(subscription_id)
        elif self._subscribers.pop(subscription_id, None) is not None:
            self.unanswered += 1

    def tell(self, route: Route, request: native.Request) -> None:
        """Send a request that has no answer, if a link is open to the node that it is for."""
        holder = self._holder(request.request_id)
        if holder is not self:
            holder.tell(route, request)
        elif self._link is not None:
            self._send(self._frame(route, request))

    def gather(self, ask: Callable[[], None]) -> None:
        """Have `ask` send what one turn of the loop gathers; it goes out with all else of it."""
        self._gathering.append(ask)
        self._post_flush()

    # Link events -----------------------------------------------------------------------------

    def link_opened(self, link: Link) -> None:
        """Ask again for all that has no answer."""
        self._link = link
        self._decoder = WireDecoder()
        self._repeating.restart()
        self._outgoing = [pending.frame for pending in self._pending.values()]
        self._outgoing += self.messages.unanswered()
        self.messages.link_opened()
        for subscriber in self._subscribers.values():
            self._resume(subscriber)
        self._post_flush()
        if self._reconnecting is not None and self._on_reconnect is not None:
            # By the loop: what it raises is not ours.
            asyncio.get_running_loop().call_soon(self._tell, self._on_reconnect)

    def messages_received(self, messages: list[bytes]) -> None:
        """Hand answers to those who wait for them."""
        try:
            for wire in self._decoder.decode(messages):
                if wire.onward_route == self._own_route:
                    self._received(native.decode_response(wire.payload), wire.return_route)
                else:
                    self.messages.received(wire)
        except CodecError as error:
            logger.warning("bad_answer", extra={"code": error.code, "offset": error.offset})
            if self._link is not None:
                self._link.close(str(error))

    def link_drained(self) -> None:
        """The node took what was buffered."""
        self._post_flush()

    def link_closed(self, reason: str) -> None:
        """Make another link, unless this session is over."""
        self._link = None
        if self._error is not None:
            return
        for subscriber in tuple(self._subscribers.values()):
            subscriber.link_lost()
        if self._on_disconnect is not None:
            asyncio.get_running_loop().call_soon(self._tell, self._on_disconnect, reason)
        if not self._reconnect:
            self._fail(TransportError("link.closed", f"the link to the node closed: {reason}"))
            return
        logger.info("link_lost", extra={"reason": reason})
        self._reconnecting = asyncio.get_running_loop().create_task(self._connect_again())

    def _tell(self, callback: Callable[..., object], *args: str) -> None:
        told = callback(*args)
        if asyncio.iscoroutine(told):
            task = asyncio.get_running_loop().create_task(told)
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    @cached_property
    def _telling(self) -> set[asyncio.Task[object]]:
        """Tasks of callbacks that are `async def`."""
        return set()

    async def _connect_again(self) -> None:
        attempt = 0
        while self._link is None:
            base = PAUSE_SECONDS[min(attempt, len(PAUSE_SECONDS) - 1)]
            await asyncio.sleep(base * self._random.uniform(0.5, 1.5))
            attempt += 1
            try:
                await self._connect(self)
            except TransportError as error:
                if not error.retryable:
                    self._fail(error)
                    return
                logger.debug("not_reached", extra={"code": error.code, "attempt": attempt})

    def _received(self, response: native.Response, route: Route) -> None:
        request_id = response.request_id
        if (
            isinstance(response, native.Failure)
            and response.nodes
            and self._follow is not None
            and self._go_elsewhere(request_id, response.nodes, self._follow)
        ):
            return
        subscriber = self._subscribers.get(request_id)
        if subscriber is not None:
            if isinstance(response, native.Failure):
                del self._subscribers[request_id]
                subscriber.failed(failure_of(response))
            else:
                subscriber.received(response, route)
            return
        if isinstance(response, native.Failure):
            if not self._repeating.refused(request_id, response):
                self._refuse(request_id, failure_of(response))
            return
        asked = self._forget(request_id, stored=True)
        if asked is None:
            self.unasked += not isinstance(response, _AGAIN)
        else:
            asked.on_response(response)

    def _refuse(self, request_id: int, error: RillnodeError) -> None:
        asked = self._forget(request_id)
        if asked is None:
            self.unasked += 1
        else:
            asked.on_response(error)

    # Other nodes -----------------------------------------------------------------------------

    def _holder(self, subscription_id: int) -> "Session":
        """The session that a subscription goes on in."""
        for other in self._others.values():
            if subscription_id in other._subscribers:
                return other
        return self

    def _go_elsewhere(
        self, request_id: int, nodes: Sequence[native.NodeAddress], follow: Follow
    ) -> bool:
        """Ask one of these nodes what this one does not serve, and whatever its address is asked.

        Returns whether anybody waits for it still.
        """
        asked = self._pending.get(request_id)
        subscriber = self._subscribers.pop(request_id, None)
        if subscriber is not None:
            address, _ = subscriber.resume()
        elif asked is not None:
            address = asked.address if asked.kind in _OF_PARTITION else b""
        else:
            return False
        key = tuple((node.address, node.identity) for node in nodes)
        other = self._others.get(key)
        if other is None:
            lost = self._others_lost
            pause = PAUSE_SECONDS[min(lost, len(PAUSE_SECONDS)) - 1] if lost else 0.0
            ways = [partial(follow, node) for node in nodes]
            other = self._others[key] = _Other(self, ways, pause, self._entropy)
        if address:
            self._elsewhere[address] = other
            self._repeating.forget(address)
        moved: dict[int, Asked] = {}
        for one_id, one in tuple(self._pending.items()):
            if one is asked or (address and one.address == address):
                # The order of what goes to a partition is kept: all that is under way moves.
                self.unanswered += one is not asked and not one.held
                one.refusal, one.held = None, False
                moved[one_id] = self._pending.pop(one_id)
        other.adopt(moved, {} if subscriber is None else {request_id: subscriber})
        return True

    def adopt(self, pending: dict[int, Asked], subscribers: dict[int, Subscriber]) -> None:
        """Ask what another session has asked before."""
        self._pending |= pending
        for asked in pending.values():
            self._send(asked.frame)
        self._subscribers |= subscribers
        for subscriber in subscribers.values():
            self._resume(subscriber)

    def other_heard(self) -> None:
        """Another node has answered."""
        self._others_lost = 0

    def other_lost(self, other: "_Other") -> None:
        """What was asked of another node is asked of this one again, which names others by then."""
        self._others_lost += 1
        self._let_go(other)
        self.adopt(*other.abandon())

    def _let_go(self, other: "_Other") -> None:
        self._others = {key: one for key, one in self._others.items() if one is not other}
        self._elsewhere = {key: one for key, one in self._elsewhere.items() if one is not other}

    # Sending ---------------------------------------------------------------------------------

    def _frame(self, route: Route, request: native.Request) -> bytes:
        header = self._headers.get(route)
        if header is None:
            if len(self._headers) > 10_000:
                self._headers.clear()
            header = self._headers[route] = encode_header(route, self._own_route)
        try:
            payload = native.encode(request)
        except (CodecError, TypeError, AttributeError) as error:
            raise arguments.unsendable(request, error) from None
        return encode_with_header(header, payload)

    def _send_message(self, frame: bytes, needs_link: bool) -> None:
        if self._error is not None:
            raise self._error
        if needs_link and self._link is None:
            raise TransportError("link.closed", "there is no link to the node at the moment")
        self._send(frame)

    def _send(self, frame: bytes) -> None:
        self._outgoing.append(frame)
        self._post_flush()

    def _post_flush(self) -> None:
        if not self._flush_posted:
            self._flush_posted = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write all that one turn of the loop has gathered at once."""
        self._ask_gathered()
        self._flush_posted = False
        self.write()

    def write(self) -> None:
        """Write what is ready, as far as the link takes it."""
        link = self._link
        if link is None:
            # What matters of it is pending, and is sent by `link_opened`.
            self._outgoing.clear()
            return
        while self._outgoing and link.buffered_bytes <= LINK_BUFFER_HIGH_BYTES:
            link.send(self._next_frames())

    def _next_frames(self) -> list[bytes]:
        """What goes out in one write; a link that is given all of a large turn at once breaks."""
        outgoing, size, count = self._outgoing, 0, 0
        for frame in outgoing:
            size += len(frame)
            count += 1
            if size > LINK_BUFFER_HIGH_BYTES:
                break
        self._outgoing = outgoing[count:]
        return outgoing if count == len(outgoing) else outgoing[:count]

    def _ask_gathered(self) -> None:
        gathering, self._gathering = self._gathering, []
        for ask in gathering:
            ask()

    def _resume(self, subscriber: Subscriber) -> None:
        if self._link is not None:
            address, request = subscriber.resume()
            self._send(self._frame((local(address),), request))

    def _forget(self, request_id: int, *, stored: bool = False) -> Asked | None:
        asked = self._pending.pop(request_id, None)
        if asked is not None:
            self._repeating.answered(request_id, asked, stored=stored)
        self._settle()
        return asked

    @property
    def _is_busy(self) -> bool:
        others = self._others.values()
        busy = self._pending or self._gathering or self.messages
        return bool(busy or any(one._is_busy for one in others))

    def _settle(self) -> None:
        if self._idle is not None and not self._is_busy:
            self._idle.set()

    def _fail(self, error: RillnodeError) -> None:
        self._error = error
        for other in tuple(self._others.values()):
            other.end(error)
        self._repeating.restart()
        pending = list(self._pending.values())
        self._pending.clear()
        subscribers, self._subscribers = self._subscribers, {}
        if self._idle is not None:
            self._idle.set()
        for asked in pending:
            asked.on_response(error)
        self.messages.fail(error)
        for subscriber in subscribers.values():
            subscriber.failed(error)


def closed_error() -> TransportError:
    """What is raised where a client has come to its end."""
    return TransportError("client.closed", "the client is closed")


def unexpected_answer() -> RequestError:
    """What is raised where a node answers something that was not asked."""
    return RequestError("client.answer", "the node gave another kind of answer")


class _Other(Session):
    """A session with one of the nodes that another one's node has named.

    Requests keep their ids, and the route that their answers come by.

    Args:
        first: whose node has named them.
        ways: to these nodes, in the order in which they are tried.
        pause: before that.
    """

    def __init__(
        self,
        first: Session,
        ways: Sequence[Callable[[], Connect]],
        pause: float,
        entropy: Entropy,
    ) -> None:
        super().__init__(self._reach, reconnect=False, entropy=entropy)
        self._first = first
        self._ways = ways
        self._own_route = first._own_route
        self._reaching = asyncio.get_running_loop().create_task(self._begin(pause))

    async def _begin(self, pause: float) -> None:
        await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
        try:
            await self._connect(self)
        except RillnodeError as error:
            if error.retryable:
                self._fail(error)
            else:
                self.end(error)

    async def _reach(self, events: LinkEvents) -> object:
        errors: list[RillnodeError] = []
        for way in self._ways:
            try:
                return await way()(events)
            except RillnodeError as error:
                logger.info("other_not_reached", extra={"code": error.code})
                errors.append(error)
        # Where one may be reached later, it is worth to ask again.
        raise next((one for one in errors if one.retryable), errors[0])

    def abandon(self) -> tuple[dict[int, Asked], dict[int, Subscriber]]:
        """Give up all that has no answer; whoever takes it asks again."""
        pending, subscribers = dict(self._pending), dict(self._subscribers)
        # `Repeating` looks into the same one.
        self._pending.clear()
        self._subscribers.clear()
        self._repeating.restart()
        for asked in pending.values():
            asked.refusal, asked.held = None, False
        return pending, subscribers

    def end(self, error: RillnodeError) -> None:
        """All that was asked here ends so."""
        self._first._let_go(self)
        self._reaching.cancel()
        super()._fail(error)
        if self._link is not None:
            self._link.close("the client is done")

    def _received(self, response: native.Response, route: Route) -> None:
        self._first.other_heard()
        super()._received(response, route)

    def _settle(self) -> None:
        super()._settle()
        self._first._settle()

    def _fail(self, error: RillnodeError) -> None:
        if self._error is None:
            self._error = error
            self._first.other_lost(self)
