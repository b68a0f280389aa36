"""A client that tries what must not be possible, and what nobody else in a run does.

It asks for what it is not granted and for nodes that are not who they should be; and it has a
stream of its own, which it fills, trims, removes and makes again.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from typing import cast

from rillnode.codecs.errors import HandshakeError, RequestError, RillnodeError
from rillnode.codecs.keys import Identity
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.simulation.clients import CALL_SECONDS, Program, Share
from rillnode.node.simulation.own_stream import OwnStream
from rillnode.node.simulation.world import CLOSED_STREAM, READ_ONLY_STREAM, Machine


class Impostor:
    """Somebody who names himself by another's public key, and signs with his own."""

    def __init__(self, own: Identity, claimed: bytes) -> None:
        self._own = own
        self.public_key = claimed

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)


class Examiner(Program):
    """Goes through all examinations, again and again."""

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        self._own = OwnStream(self)
        self._saved: dict[str, int] = {}
        self._tried: dict[str, int] = {}

    async def live(self, client: Client, stream: Stream) -> None:
        """Examine one thing after the other, with pauses."""
        examinations = (self._grants, self._own.examine, self._saved_index)
        await self._identities()
        try:
            while True:
                for examine in examinations:
                    await asyncio.sleep(self.random.uniform(0.2, 1.0))
                    await examine(client)
        finally:
            self._own.close()

    def missing(self, healed_at: float) -> Iterator[str]:
        """What it waits for."""
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
        names = [info.name for info in await client.streams()]
        if CLOSED_STREAM in names or READ_ONLY_STREAM not in names:
            self._broken("grant-ignored", f"it is shown {names}")

    async def _refused(self, doing: Awaitable[object], what: str) -> None:
        """See that something is refused; other failures are the next session's affair."""
        try:
            await doing
        except RequestError as error:
            self.share.history.note(self.name, "refused", error.code)
        else:
            self._broken("grant-ignored", what)

    # Positions -------------------------------------------------------------------------------

    async def _saved_index(self, client: Client) -> None:
        """Save positions in any order: none goes back, whoever else saves others."""
        history, who = self.share.history, f"{self.life}-position"
        for wanted in self.random.choices(range(1_000), k=3):
            self._tried[who] = max(wanted, self._tried.get(who, 0))
            saved = await client.set_index(who, READ_ONLY_STREAM, wanted)
            read = await client.get_index(who, READ_ONLY_STREAM) or 0
            best = max(wanted, self._saved.get(who, 0))
            # One that was never answered may have been saved all the same.
            if self.log_name not in history.lost and not best <= saved == read <= self._tried[who]:
                text = f"{best} was saved, the node says {saved} and {read}"
                self._broken("saved-index-lost", text)
            self._saved[who] = best

    # Who is who ------------------------------------------------------------------------------

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
