"""Clients on plain Ockam TCP: they do what those do that speak Ockam's protocols over other links.

Nothing is sealed there, so that nobody has proved who he is: grants name all of them `anonymous`.
"""

from typing import Final

from rillnode.actors.core.links.connection import PING, PONG
from rillnode.codecs.errors import ActorError
from rillnode.codecs.limits import U16_MESSAGE_BYTES_MAX, U32_MESSAGE_BYTES_MAX
from rillnode.codecs.routing.dialects import Dialect
from rillnode.codecs.routing.routes import WireMessage, local, parse_route
from rillnode.node.client.client import Client
from rillnode.node.client.messages import Messages
from rillnode.node.client.session import Connect
from rillnode.node.ockam.simulation.tcp import OckamTcpLink, tcp_connect
from rillnode.node.ockam.simulation.users import OckamUser
from rillnode.node.simulated.programs import CALL_SECONDS, Share
from rillnode.node.simulated.world import Machine
from rillnode.transports.links import LinkEvents

DIALECTS: Final[tuple[Dialect, ...]] = ("u16", "2024")

FIRST_BYTES: Final = range(180, 560)
"""Sizes of what is echoed first: a frame of 256 to 511 bytes begins as the other dialect does."""

PUSHED_BYTES: Final = range(64, 460)
LARGE_BYTES: Final = 40_000
LARGE_PART: Final = 0.05
"""Of two that are so large the second comes with another answer, in u16 frames."""


class OckamTcpUser(OckamUser):
    """An Ockam node whose worker uses a stream.

    Attributes:
        dialect: of its release.
        links: what is chance in its links.
    """

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        random = share.world.network.random
        self.links = random(f"links of {machine.name}")
        self.dialect: Dialect = self.links.choice(DIALECTS)

    async def _connect(self) -> Client:
        connect = self.tcp_connect()
        return await self.share.world.client(self.machine, self.node, connect=connect)

    def tcp_connect(self) -> Connect:
        """A way to open links to the node's `ockam` listener."""
        return tcp_connect(self._make_link, self.node)

    def _make_link(self, events: LinkEvents) -> OckamTcpLink:
        machine, history = self.share.world.nodes[self.node], self.share.history
        return OckamTcpLink(events, self.dialect, self.links, machine, self.name, history)

    async def _use(self, client: Client) -> None:
        await self._echo(client)
        session = self.machine.session
        assert session is not None, "it has just connected"
        self.ask_nobody(session.messages)
        await self.refused(client)
        await self.work(client)

    def payload_bytes(self) -> int:
        """How large the next entry is."""
        return LARGE_BYTES if self.links.random() < LARGE_PART else self.random.choice(PUSHED_BYTES)

    @property
    def answer_bytes_max(self) -> int:
        """How large an answer the dialect takes."""
        return U16_MESSAGE_BYTES_MAX if self.dialect == "u16" else U32_MESSAGE_BYTES_MAX

    def ask_nobody(self, messages: Messages) -> None:
        """Send what reaches nobody: Ockam's nodes are not told, in a way that they do not know."""

        def told(wire: WireMessage) -> None:
            text = f"{self.name} is answered {wire.payload[:48]!r}, by nobody"
            self.share.history.broken("route-answer", text)

        messages.send(parse_route("nowhere"), b"who is there?", (local(messages.attach(told)),))

    async def _echo(self, client: Client) -> None:
        """Have bytes come back, as the first message of a link; and test it as nodes of 2021 do."""
        sent = bytes(self.random.choice(FIRST_BYTES))
        for route, payload, expected in ((parse_route("echo"), sent, sent), ((), PING, PONG)):
            while True:
                try:
                    # Not `client.ask`, which takes no route without an address.
                    answer = await client.messages.ask(route, payload, seconds=CALL_SECONDS)
                except ActorError as error:
                    self.unanswered(error)
                    continue
                if answer.payload != expected:
                    text = f"{self.name} got another answer than the one to {payload[:8]!r}"
                    self.share.history.broken("route-answer", text)
                break
