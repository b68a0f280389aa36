"""Clients that send messages along routes, through their own node to another and back."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Final

from rillnode.actors.core.links.connection import SLICE_FRAMES
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.routes import Route, WireMessage, local, parse_route
from rillnode.codecs.routing.stream import (
    CreateRequest,
    PullRequest,
    PullResponse,
    decode_response,
    encode_request,
)
from rillnode.node.client.client import Client
from rillnode.node.client.messages import OnMessage
from rillnode.node.client.session import Session
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import History, log_of
from rillnode.node.simulated.programs import (
    CALL_SECONDS,
    TEXT,
    Program,
    Share,
    check_pulled,
    payload_of,
)
from rillnode.node.simulated.world import Machine, World
from rillnode.node.simulation.pipes import WINDOW_BYTES

MUCH_BYTES: Final = LINK_BUFFER_HIGH_BYTES + 2 * WINDOW_BYTES
"""One message: more than a connection has under way, and than what is held back for the rest."""

LITTLE: Final = b"little "

LITTLES: Final = 12
"""Small messages behind a large one: some come while that goes, and others when it has gone."""

GAP_SECONDS: Final = 0.01

MUCH_PART: Final = 0.03
"""How many lives of a client send so much: it costs as much as all else that one sends."""

LATER_SECONDS: Final = 5.0
"""From the beginning of a life on, at most."""


class MuchAtOnce:
    """One client's large message and the small one behind it, to its node's echo and another's.

    What is over the mark up to which links and nodes hand on at once waits until the other side has
    taken what is before it, and goes on then by itself: nothing else is sent over this link.

    Args:
        program: the client.
        way: the route from its node to the other, as text; empty: the same.

    Attributes:
        waits: whether the small one has not come back from its own node, over a link that is there.
    """

    def __init__(self, program: Program, way: str) -> None:
        self._program = program
        self._ways = ("echo", f"{way}echo")
        self._random = program.share.world.network.random(f"much of {program.life}")
        self._session: Session | None = None
        self._came = asyncio.Event()
        self._sent = False

    @property
    def waits(self) -> bool:
        """Whether the small message may and must come still."""
        session = self._session
        return self._sent and session is not None and session.connected and not self._came.is_set()

    def begin(self, client: "asyncio.Task[None]") -> None:
        """Send, in few lives of a client; until the client's task is over."""
        if self._random.random() < MUCH_PART:
            sending = client.get_loop().create_task(self._send())
            client.add_done_callback(lambda _: sending.cancel())

    async def _send(self) -> None:
        program = self._program
        world, machine = program.share.world, program.machine
        node = world.nodes[program.node].identity.public_hex
        await asyncio.sleep(self._random.uniform(0.0, LATER_SECONDS))
        session = world.session(machine, program.node, identity=machine.identity, expected=node)
        try:
            await session.open()
            self._session = session
            for route in map(parse_route, self._ways):
                back = (local(session.messages.attach(self._taker())),)
                session.messages.send(route, bytes(MUCH_BYTES), back)
                await asyncio.sleep(0.0)  # in another turn: it goes out by itself
                session.messages.send(route, LITTLE + b"1", back)
                self._sent = True
                await self._came.wait()
                await self._send_on(session, route, back)
        except RillnodeError as error:
            program.share.history.note(program.name, "much is not sent", error.code)

    async def _send_on(self, session: Session, route: Route, back: Route) -> None:
        """Send more, by turns: all comes in its order."""
        session.messages.send(route, bytes(MUCH_BYTES), back)
        for number in range(2, LITTLES):
            session.messages.send(route, b"%b%d" % (LITTLE, number), back)
            await asyncio.sleep(GAP_SECONDS)

    def _taker(self) -> OnMessage:
        """Takes what comes back along one route."""
        last = 0

        def take(wire: WireMessage) -> None:
            nonlocal last
            if not wire.payload.startswith(LITTLE):
                return
            before, last = last, int(wire.payload.removeprefix(LITTLE))
            self._came.set()
            if last <= before:
                text = f"{self._program.name}: {last} comes back behind {before}"
                self._program.share.history.broken("route-order", text)

        return take


QUIET_SECONDS: Final = 0.5
"""How long after a message a second copy of it is waited for."""


class ServiceCalls:
    """One client's registrations at one node, over a link of its own.

    Args:
        session: to the client's own node; open.
        way: the route from there to the services' node, as text; empty: the same.
        name: of the client.
        seconds: how long an answer may take.
    """

    def __init__(
        self, session: Session, way: str, name: str, history: History, seconds: float
    ) -> None:
        self._session = session
        self._way = way
        self._name = name
        self._history = history
        self._seconds = seconds
        self._sent: dict[bytes, None] = {}
        self._received: list[WireMessage] = []
        self._arrived = asyncio.Event()
        self._address = session.messages.attach(self._take)

    async def call(self, number: int) -> None:
        """Register with each service, and send a message to what it has given.

        Raises:
            TimeoutError: something has not come back; the link to the services' node may be gone.
            RillnodeError: the session has ended.
        """
        named = f"{self._name}.{number}"
        topics = [TEXT.encode(f"{self._name}{twin}:{named}") for twin in ("", "-twin", "")]
        for service, payloads in (
            ("forwarding_service", [named.encode()]),
            ("static_forwarding_service", [TEXT.encode(self._name)]),
            # Two subscribers, of which one has subscribed again.
            ("pub_sub_service", topics),
        ):
            route = parse_route(f"{self._way}{service}")
            given = [await self._send(route, payload) for payload in payloads][-1]
            sent, receivers = f"{service} {named}".encode(), len(set(payloads))
            await self._send(given.return_route, sent, receivers)
            await asyncio.sleep(QUIET_SECONDS)
            copies = sum(wire.payload == sent for wire in self._received)
            if copies > receivers:
                text = f"{self._name} got {copies} copies of what it has sent to {receivers}"
                self._history.broken("answered-twice", text)

    async def _send(self, route: Route, payload: bytes, receivers: int = 1) -> WireMessage:
        """Send a message to what sends it on to this client, and take it, once for each."""
        self._sent[payload] = None
        self._received.clear()
        self._session.messages.send(route, payload, (local(self._address),))
        async with asyncio.timeout(self._seconds):
            while True:
                copies = [wire for wire in self._received if wire.payload == payload]
                if len(copies) >= receivers:
                    return copies[0]
                self._arrived.clear()
                await self._arrived.wait()

    def _take(self, wire: WireMessage) -> None:
        """Take what comes; it may be late, from a call that was given up."""
        if native.is_native(wire.payload):
            return  # a node's word that something could not be handed on
        if wire.payload not in self._sent:
            self._wrong(f"{wire.payload!r} was sent by nobody")
        self._received.append(wire)
        self._arrived.set()

    def _wrong(self, text: str) -> None:
        self._history.broken("route-answer", f"{self._name}: {text}")


PAUSE_SECONDS: Final = 3.0
"""Between two trains, on average."""

TRAIN_PARTS: Final = 2

FIRST_MESSAGES: Final = SLICE_FRAMES + 8
"""To the client's own node, at the beginning: more than a node hands on at once."""

FIRST_CHANCE: Final = 0.1
"""Of those, for one life of a client: they cost as much as all that follows."""


class RouteOrder:
    """One client's messages along a route to its node's echo, and along one to another's.

    They come back in their order, each once. Those that end at the client's own node come back all,
    for as long as its link is there and no actor is made to fail at them; of the others some may be
    lost with the link between the nodes, and nobody sends them again.

    Args:
        session: to the client's own node; open.
        way: the route from there to the other node, as text; empty: the same.
        name: of the client.
    """

    def __init__(
        self, session: Session, way: str, name: str, world: World, history: History
    ) -> None:
        self._session = session
        self._name = name
        self._history = history
        self._random = world.network.random(f"trains of {name}")
        self._sent, self._came = Counter[bytes](), Counter[bytes]()
        attach = session.messages.attach
        self._routes: dict[bytes, tuple[Route, Route]] = {
            b"near": (parse_route("echo"), (local(attach(self._take)),)),
            b"far": (parse_route(f"{way}echo"), (local(attach(self._take)),)),
        }

    def begin(self, client: "asyncio.Task[None]") -> None:
        """Send trains until the client's task or its session is over."""
        sending = client.get_loop().create_task(self._send_trains())
        client.add_done_callback(lambda _: sending.cancel())

    async def _send_trains(self) -> None:
        try:
            if self._random.random() < FIRST_CHANCE:
                for _ in range(FIRST_MESSAGES):
                    self._send(b"near")
            while True:
                await asyncio.sleep(self._random.uniform(0.0, 2 * PAUSE_SECONDS))
                self._send(b"near")
                for _ in range(TRAIN_PARTS):
                    self._send(b"far")
                    await asyncio.sleep(GAP_SECONDS)
        except RillnodeError as error:
            self._history.note(self._name, "no more in order", error.code)

    def _send(self, where: bytes) -> None:
        self._sent[where] += 1
        route, back = self._routes[where]
        self._session.messages.send(route, b"%b %d" % (where, self._sent[where]), back)

    def _take(self, wire: WireMessage) -> None:
        if native.is_native(wire.payload):
            return  # a node's word that something could not be handed on
        where, _, digits = wire.payload.partition(b" ")
        before, number = self._came[where], int(digits)
        self._came[where] = number
        lacking = where == b"near" and number > before + 1 and not self._history.failed
        if number <= before or lacking:
            text = f"{self._name}: {number} comes back along the {where.decode()} route"
            self._history.broken("route-order", f"{text} behind {before}")


LOOK_ENTRIES: Final = 3


class RouteCaller(Program):
    """Sends messages along a route through a peer of its node, and expects what it has sent.

    It looks, too, whether it is that peer which answers: a node knows its own log.

    Attributes:
        answered_at: when the last answer came.
    """

    def __init__(self, share: Share, machine: Machine, node: str, *, through: str) -> None:
        super().__init__(share, machine, node)
        self.answered_at = 0.0
        self._way = "" if through == node else f"peer/{through};"
        self._far = through
        self._much: MuchAtOnce | None = None

    async def live(self, client: Client, stream: Stream) -> None:
        """Call now and then."""
        history, number = self.share.history, 0
        world, machine = self.share.world, self.machine
        expected = world.nodes[self.node].identity.public_hex
        session = world.session(machine, self.node, identity=machine.identity, expected=expected)
        await session.open()
        RouteOrder(session, self._way, self.life, world, history).begin(self._task)
        self._much = MuchAtOnce(self, self._way)
        self._much.begin(self._task)
        services = ServiceCalls(session, self._way, self.life, history, CALL_SECONDS)
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 1.5))
            number += 1
            sent = payload_of(self.name, number, 64)
            try:
                route = f"{self._way}echo"
                answer = await client.ask(route, sent, timeout_seconds=CALL_SECONDS)
                await self._look(client, number)
                await services.call(number)
            except TimeoutError:
                history.note(self.name, "unanswered", "by a service")
                continue
            except RillnodeError as error:
                history.note(self.name, "unanswered", error.code)
                if not session.connected:
                    raise
                continue
            self.answered_at = history.now()
            history.note(self.name, "answer", str(number))
            if answer.payload != sent:
                history.broken("route-answer", f"{self.name} got another answer than it asked for")

    def missing(self, healed_at: float) -> Iterator[str]:
        """An answer."""
        yield from super().missing(healed_at)
        if self.answered_at < healed_at:
            yield "no call along its route is answered"
        if self._much is not None and self._much.waits:
            yield "what it has sent behind much else is not answered"

    async def _look(self, client: Client, number: int) -> None:
        """Pull the beginning of the far node's log, by way of its own.

        Raises:
            RillnodeError: there is no answer, or another one.
        """
        history, log = self.share.history, (log_of(self._far), 0)
        end = history.confirmed_end(log)
        create = encode_request(CreateRequest(self.share.stream or log[0]))
        pull = encode_request(PullRequest(number, 0, LOOK_ENTRIES))
        seconds = CALL_SECONDS
        created = await client.ask(f"{self._way}stream", create, timeout_seconds=seconds)
        answer = await client.ask(created.return_route, pull, timeout_seconds=seconds)
        match decode_response(answer.payload):
            case PullResponse(messages=messages):
                check_pulled(history, self.name, log, 0, LOOK_ENTRIES, end, messages)
            case other:
                raise RequestError("client.answer", f"the node gave another answer: {other}")
