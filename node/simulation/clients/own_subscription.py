"""Checks that only a subscription's subscriber can end or hasten it."""

import asyncio
from contextlib import suppress
from typing import Final

from rillnode.actors.core.streams.context import stream_address
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, RequestError, RillnodeError
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.routing.routes import Route, local
from rillnode.node.client.client import Client
from rillnode.node.simulated.programs import CALL_SECONDS, Program

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
