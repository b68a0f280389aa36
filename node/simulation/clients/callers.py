"""Clients that send messages along routes, through their own node to another and back."""

import asyncio
from collections.abc import Iterator
from typing import Final

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.routing.stream import (
    CreateRequest,
    PullRequest,
    PullResponse,
    decode_response,
    encode_request,
)
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import log_of
from rillnode.node.simulated.programs import (
    CALL_SECONDS,
    Program,
    Share,
    check_pulled,
    payload_of,
)
from rillnode.node.simulated.world import Machine
from rillnode.node.simulation.clients.much_at_once import MuchAtOnce
from rillnode.node.simulation.clients.route_order import RouteOrder
from rillnode.node.simulation.clients.service_calls import ServiceCalls

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
