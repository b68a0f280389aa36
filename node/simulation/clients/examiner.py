"""Tries what must not be possible, and what no other client of a run does.

It asks for what it is not granted and for nodes that are not who they should be; and it has a
stream of its own, which it fills, trims, removes and makes again.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from typing import Final, cast

from rillnode.actors.core.streams.context import stream_address
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, HandshakeError, RequestError, RillnodeError
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.routing.routes import Route, local
from rillnode.codecs.routing.stream import PullRequest, PushRequest, encode_request
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.nodes import CLOSED_STREAM, READ_ONLY_STREAM
from rillnode.node.simulated.programs import (
    AGAIN_SECONDS,
    CALL_SECONDS,
    TEXT,
    Program,
    Share,
)
from rillnode.node.simulated.world import Machine, NodeMachine
from rillnode.node.simulation.clients.own_stream import LimitedStream, OwnStream

EXAMINED_PART: Final = 0.25
"""How many lives of a client look: it takes a link of another's."""

_ID: Final = 7


class OwnSubscription:
    """A subscription of one client's, which another tries to end; `examine` looks once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._random = program.share.world.network.random(f"subscription of {program.life}")

    async def examine(self, client: Client) -> None:
        """Follow the node's log with credit for one block, and have another end that.

        Raises:
            RillnodeError: there is no link any more.
        """
        if self._random.random() >= EXAMINED_PART:
            return
        program = self._program
        history, dials = program.share.history, program.share.world.network.dials
        stream, before = (local(stream_address(program.stream_name, 0)),), dials[program.name]
        request = native.encode(native.SubscribeRequest(_ID, 0, 1))
        try:
            begun = await client.ask(stream, request, timeout_seconds=CALL_SECONDS)
            await self._end(begun.return_route)
            # There is an answer where there is another block, and a refusal where nobody is.
            credit = native.encode(native.CreditRequest(_ID, 1))
            await client.ask(begun.return_route, credit, timeout_seconds=CALL_SECONDS)
        except ActorError as error:  # there is no block, or no other
            history.note(program.name, "unanswered", error.code)
        except RequestError as error:
            history.note(program.name, "refused", error.code)
            if error.code == "address.unknown" and dials[program.name] == before + 1:
                history.broken("impostor", f"another has ended a subscription of {program.name}")
        finally:
            with suppress(RillnodeError):  # without a link it is over
                await client.send(stream, native.encode(native.UnsubscribeRequest(_ID)))

    async def _end(self, route: Route) -> None:
        """End a subscription over a link of another's, who is none of its business."""
        program = self._program
        world, machine = program.share.world, program.machine
        other = Identity.from_seed(machine.entropy(SEED_BYTES))
        node = world.nodes[program.node].identity.public_hex
        session = world.session(machine, program.node, identity=other, expected=node)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await session.open()
                session.messages.send(route, native.encode(native.UnsubscribeRequest(_ID)))
                await Client(session).streams()  # behind it
        except TimeoutError:
            program.share.history.note(program.name, "unanswered", "another")
        except RillnodeError as error:
            program.share.history.note(program.name, "failed", error.code)
        await session.close()


NONSENSE_SENT: Final = 4
"""Messages that are none of any protocol, in each examination."""

SAVE_TRIES: Final = 4

SPAN_SECONDS_MAX: Final = 60.0
"""Pauses grow with the run, but not beyond those of one that is so long."""


class Impostor:
    """Somebody who names himself by another's public key, and signs with his own."""

    def __init__(self, own: Identity, claimed: bytes) -> None:
        self._own = own
        self.public_key = claimed

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)


async def _save_closed(machine: NodeMachine) -> None:
    with suppress(RillnodeError):  # its disk may be in trouble
        await machine.node.client.set_index("inside", CLOSED_STREAM, 1)


class Examiner(Program):
    """Goes through all examinations, again and again."""

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        self._own = OwnStream(self)
        self._limited = LimitedStream(self)
        self._saved: dict[str, int] = {}
        self._tried: dict[str, int] = {}

    async def live(self, client: Client, stream: Stream) -> None:
        """Examine one thing after the other, with pauses."""
        self._own = OwnStream(self)
        own, limited = self._own.examine, self._limited.examine
        examinations = (own, limited, self._grants, self._saved_index)
        # About as many in a long run as in a short one, and in one that heals for long.
        span, world = min(self.share.seconds, SPAN_SECONDS_MAX), self.share.world
        began = world.now
        await self._identities()
        await self._alias(client)
        await OwnSubscription(self).examine(client)
        await self._save_inside()
        try:
            while True:
                for examine in examinations:
                    passed = max(span, world.now - began)
                    await asyncio.sleep(self.random.uniform(0.0125, 0.0625) * passed)
                    await examine(client)
        finally:
            self._own.close()

    def missing(self, healed_at: float) -> Iterator[str]:
        """What it waits for."""
        yield from super().missing(healed_at)
        if self._own.waits_for:
            yield self._own.waits_for

    def _broken(self, rule: str, text: str) -> None:
        self.share.history.broken(rule, f"{self.name} at {self.node}: {text}")

    # What is not granted ---------------------------------------------------------------------

    async def _grants(self, client: Client) -> None:
        readable = await client.stream(READ_ONLY_STREAM)
        await self._refused(readable.push(b"not granted"), "pushed where it may only read")
        await self._refused(client.stream(CLOSED_STREAM), "opened what it has no grant for")
        await self._refused(client.stream("elsewhere"), "made a stream that it may not make")
        await self._refused(
            client.trim(READ_ONLY_STREAM, before=0), "trimmed what it may only read"
        )
        await self._refused(client.remove(READ_ONLY_STREAM), "removed what it may only read")
        await self._refused(client.describe(CLOSED_STREAM), "is told of what it has no grant for")
        await self._refused(
            client.get_index(self.name, CLOSED_STREAM), "has a position where it may not read"
        )
        for request in (PullRequest(1, 0, 1), PushRequest(2, b"not granted")):
            route = (local(stream_address(CLOSED_STREAM, 0)),)
            asking = client.ask(route, encode_request(request), timeout_seconds=CALL_SECONDS)
            await self._refused(asking, "is answered by what it has no grant for")
        names = [info.name for info in await client.streams()]
        if CLOSED_STREAM in names or READ_ONLY_STREAM not in names:
            self._broken("grant-ignored", f"it is shown {names}")
        if CLOSED_STREAM in [saved.stream for saved in await client.indexes()]:
            self._broken("grant-ignored", f"it is shown a position in {CLOSED_STREAM}")
        await self._nonsense(client)

    async def _save_inside(self) -> None:
        """Have the node itself save a position where nobody else may look."""
        machine = self.share.world.nodes[self.node]
        if machine.ready:
            machine.loop.create_task(_save_closed(machine))

    async def _refused(self, doing: Awaitable[object], what: str) -> None:
        """See that something is refused; other failures are the next session's affair."""
        try:
            await doing
        except RequestError as error:
            self.share.history.note(self.name, "refused", error.code)
        else:
            self._broken("grant-ignored", what)

    async def _nonsense(self, client: Client) -> None:
        """Send what no protocol knows: nothing comes of it, and the node goes on."""
        random = self.random
        pieces = (
            encode_request(PullRequest(3, 0, 1)),
            native.encode(native.ReadRequest(4, 0, 1, 100)),
            native.encode(native.OpenRequest(5, READ_ONLY_STREAM, 1)),
        )
        places = (b"stream", b"stream_index", stream_address(READ_ONLY_STREAM, 0))
        for _ in range(NONSENSE_SENT):
            piece = random.choice(pieces)
            payload = piece[: random.randrange(len(piece))] + random.randbytes(random.randrange(3))
            await client.send((local(random.choice(places)),), payload)

    # Positions -------------------------------------------------------------------------------

    async def _saved_index(self, client: Client) -> None:
        """Save positions in any order: none goes back, whoever else saves others."""
        history, who = self.share.history, f"{self.life}-position"
        for wanted in self.random.choices(range(1_000), k=3):
            self._tried[who] = max(wanted, self._tried.get(who, 0))
            saved = await self._save(client, who, wanted)
            read = await client.get_index(who, READ_ONLY_STREAM) or 0
            best = max(wanted, self._saved.get(who, 0))
            # One that was never answered may have been saved all the same.
            if self.log_name not in history.lost and not best <= saved == read <= self._tried[who]:
                text = f"{best} was saved, the node says {saved} and {read}"
                self._broken("saved-index-lost", text)
            self._saved[who] = best

    async def _save(self, client: Client, who: str, wanted: int) -> int:
        """Save a position; what was refused is asked for again, as it is."""
        for _ in range(SAVE_TRIES):
            try:
                return await client.set_index(who, READ_ONLY_STREAM, wanted)
            except RequestError as error:
                self.share.history.note(self.name, "refused", error.code)
            await asyncio.sleep(AGAIN_SECONDS)
        return await client.set_index(who, READ_ONLY_STREAM, wanted)

    # Who is who ------------------------------------------------------------------------------

    async def _alias(self, client: Client) -> None:
        """Take a name that leads here: nobody else gets it."""
        world, machine = self.share.world, self.machine
        other = Identity.from_seed(machine.entropy(SEED_BYTES))
        node = world.nodes[self.node].identity.public_hex
        session = world.session(machine, self.node, identity=other, expected=node)
        name, service = TEXT.encode(self.life), "static_forwarding_service"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await session.open()
                await client.ask(service, name)
                await Client(session).ask(service, name)
        except TimeoutError:
            self.share.history.note(self.name, "unanswered", service)
        except RillnodeError as error:
            self.share.history.note(self.name, "refused", error.code)
        else:
            self._broken("impostor", f"another has got its alias {self.life}")
        await session.close()

    async def _identities(self) -> None:
        """No node passes for another, and no client for its node."""
        world, machine = self.share.world, self.machine
        node = world.nodes[self.node].identity
        wrong = cast(Identity, Impostor(machine.identity, node.public_key))
        for what, identity, expected in (
            ("a node that it does not expect", machine.identity, machine.identity.public_hex),
            ("a node that takes it for another", wrong, node.public_hex),
        ):
            session = world.session(machine, self.node, identity=identity, expected=expected)
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await session.open()
                    await Client(session).streams()
            except TimeoutError:
                self.share.history.note(self.name, "unanswered", what)
            except HandshakeError as error:
                self.share.history.note(self.name, "refused", error.code)
            except RillnodeError as error:
                self.share.history.note(self.name, "failed", error.code)
            else:
                self._broken("impostor", f"it is connected to {what}")
            await session.close()
