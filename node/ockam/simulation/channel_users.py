"""Clients of secure channels: they use streams through them, whoever carries the messages."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Final, get_args

from rillnode.codecs import native
from rillnode.codecs.channel_key import KEY_BYTES, ChannelKey
from rillnode.codecs.errors import ActorError, RillnodeError, TransportError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.ockam.channel_cipher import Level
from rillnode.codecs.routing.routes import Route, WireMessage, local, parse_route
from rillnode.node.client.client import Client
from rillnode.node.client.messages import Messages
from rillnode.node.ockam.client.channel import ChannelLevel, SecureChannel, open_channel
from rillnode.node.ockam.simulation.channel_audit import ChannelAudit, Interceptor
from rillnode.node.ockam.simulation.tcp_users import OckamTcpUser
from rillnode.node.simulated.history import History, log_of
from rillnode.node.simulated.programs import AGAIN_SECONDS, CALL_SECONDS, Share, payload_of
from rillnode.node.simulated.world import Machine

LEVELS: Final[tuple[ChannelLevel, ...]] = get_args(ChannelLevel)
CHANNEL_IDLE_SECONDS: Final = 30.0
"""After which, or up to twice as long, an idle secure channel ends."""

LISTENERS: Final = ("SC_listener", "api")

PLAIN_CHANCE: Final = 0.5
"""That a client of its own node's channels comes over plain Ockam TCP; from there
nobody sends to peers."""

UNANSWERED_MAX: Final = 2
"""Questions in a row without an answer, after which a channel is given up."""

TRAIN_MAX: Final = 4
TRAIN_BYTES: Final = 64
PAUSE_SECONDS: Final = 2.0
"""Between two trains, on average."""

REFUSED_SECONDS: Final = 1.0
"""How long an answer is waited for that must not come."""


class ChannelOrder:
    """Messages through one channel, and back from an alias there: all, in order, each once.

    A channel ends with the connection that carries it, and nothing comes through it then: so there
    is no gap, wherever the other end is.

    Attributes:
        answered_at: when something came back for the last time; None: nothing has.
    """

    def __init__(self, channel: SecureChannel, name: str, random: Random, history: History) -> None:
        self._messages = channel.messages
        self._name = name
        self._random = random
        self._history = history
        self._sent = self._came = 0
        self.answered_at: float | None = None
        self._alias: asyncio.Future[Route] = asyncio.get_running_loop().create_future()
        self._back = (local(channel.messages.attach(self._take)),)

    async def run(self) -> None:
        """Send trains of messages until the channel has ended.

        Raises:
            TimeoutError: it answers nothing.
            RillnodeError: it has ended.
        """
        self._messages.send(parse_route("forwarding_service"), b"", self._back)
        async with asyncio.timeout(CALL_SECONDS):
            alias = await self._alias
        while True:
            for _ in range(self._random.randrange(1, TRAIN_MAX + 1)):
                self._sent += 1
                payload = payload_of(self._name, self._sent, TRAIN_BYTES)
                self._messages.send(alias, payload, self._back)
            await asyncio.sleep(self._random.uniform(0.0, 2 * PAUSE_SECONDS))

    def _take(self, wire: WireMessage) -> None:
        if native.is_native(wire.payload):
            return  # a node's word that something could not be handed on
        self.answered_at = self._history.now()
        if not self._alias.done():
            self._alias.set_result(wire.return_route)
            return
        expected = self._came + 1
        # At some an actor may have been made to fail: they are lost.
        numbers = range(expected, (self._sent if self._history.failed else expected) + 1)
        for number in numbers:
            if wire.payload == payload_of(self._name, number, TRAIN_BYTES):
                self._came = number
                return
        self._came = expected
        text = f"{self._name}: {wire.payload[:48]!r} comes through its channel as {expected}."
        self._history.broken("route-order", text)


class ChannelUser(OckamTcpUser):
    """Uses a stream through one channel, while another over the same link carries trains.

    Args:
        far: the node that has the channels' other end; where it is not the client's own, that
            one hands all on.
        audit: sees all that goes through channels.

    Attributes:
        far: see above.
        plain: whether plain Ockam TCP carries the channels, as between Ockam's own nodes.
    """

    def __init__(
        self, share: Share, machine: Machine, node: str, *, far: str, audit: ChannelAudit
    ) -> None:
        super().__init__(share, machine, node)
        self.log_name = log_of(far)
        self.stream_name = share.stream or self.log_name
        self.far = far
        self._way = "" if far == node else f"peer/{far};"
        self.plain = not self._way and self.links.random() < PLAIN_CHANCE
        self._audit = audit
        self._unanswered = 0
        self._opened = 0
        self._listener = parse_route(self._way + self.links.choice(LISTENERS))
        self._ordered: ChannelOrder | None = None

    async def _connect(self) -> Client:
        connect, world = self.tcp_connect() if self.plain else None, self.share.world
        return await world.client(self.machine, self.node, reconnect=False, connect=connect)

    async def _use(self, client: Client) -> None:
        session = self.machine.session
        assert session is not None, "it has just connected"
        examining = asyncio.get_running_loop().create_task(self._examine(session.messages))
        try:
            while True:
                try:
                    await self._talk(session.messages)
                except RillnodeError as error:
                    if not session.connected:
                        raise
                    self.share.history.note(self.name, "channel over", error.code)
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            examining.cancel()

    @property
    def answer_bytes_max(self) -> int:
        """How large an answer the link takes that carries the channel."""
        return super().answer_bytes_max if self.plain else FRAME_BYTES_MAX

    def unanswered(self, error: ActorError) -> None:
        """Ask again, unless the channel is given up.

        Raises:
            ActorError: it is.
        """
        super().unanswered(error)
        self._unanswered += 1
        if self._unanswered >= UNANSWERED_MAX:
            raise error

    def missing(self, healed_at: float) -> Iterator[str]:
        """What comes back through its channels."""
        yield from super().missing(healed_at)
        order = self._ordered
        if order is None or (order.answered_at or 0.0) < healed_at:
            yield "nothing comes back through its channel"

    # Channels --------------------------------------------------------------------------------

    async def _open(
        self,
        messages: Messages,
        *,
        key: ChannelKey | None = None,
        expected: str | None = None,
        sent_over: Messages | None = None,
    ) -> SecureChannel:
        """Open a channel, of a level that this client draws.

        Args:
            messages: of the link that carries it.
            key: None: the client's own.
            expected: whose key the other end has; None: that of the client's far node.
            sent_over: a link that carries what is sealed instead.

        Raises:
            RillnodeError: as `open_channel`.
        """
        world, level = self.share.world, self.random.choice(LEVELS)
        self._opened += 1
        name = f"{self.life}.{self._opened}"
        random = world.network.random(f"way of {name}")
        between = Interceptor(messages, Level(level), name, self._audit, random)
        channel = await open_channel(
            between,
            self._listener,
            level=level,
            key=key or self.machine.channel_key,
            remote_key=expected or world.nodes[self.far].channel_key.public_hex,
            seconds=CALL_SECONDS,
        )
        if sent_over is not None:
            between.send_over(sent_over)
        return channel

    async def _talk(self, messages: Messages) -> None:
        """Use the stream until a channel ends.

        Raises:
            RillnodeError: one has.
        """
        # Both handshakes begin with one write.
        used, ordered = await asyncio.gather(self._open(messages), self._open(messages))
        name = f"{self.life}.{self._opened}"
        random = self.share.world.network.random(f"trains of {name}")
        order = self._ordered = ChannelOrder(ordered, name, random, self.share.history)
        self._unanswered = 0
        sending = asyncio.get_running_loop().create_task(self._order(order, used))
        try:
            self.ask_nobody(used.messages)
            await self.refused(used)
            await self.work(used)
        finally:
            sending.cancel()
            for channel in (used, ordered):
                await channel.close()

    async def _order(self, order: ChannelOrder, used: SecureChannel) -> None:
        """Send trains; when their channel ends, end the other, too."""
        try:
            await order.run()
        except TimeoutError:
            self.share.history.note(self.name, "no more in order", "nothing comes")
        except RillnodeError as error:
            self.share.history.note(self.name, "no more in order", error.code)
            self._check_end(error, order)
        await used.close()

    def _check_end(self, error: RillnodeError, order: ChannelOrder) -> None:
        """A channel that ends here has a reason: its connection has ended, or it was idle."""
        session, last = self.machine.session, order.answered_at
        if session is None or not session.connected or error.code == "channel.closed":
            return
        quiet = self.share.history.now() - (last or 0.0)
        by_node = not self._way and last is not None and quiet < CHANNEL_IDLE_SECONDS / 2
        if by_node or isinstance(error, TransportError):
            text = f"{self.name}: a channel ended {quiet:.1f} s after it was in use: {error}"
            self.share.history.broken("channel-lost", text)

    async def _examine(self, messages: Messages) -> None:
        """See that no key passes for another one, and none opens a channel that may not."""
        note, broken = self.share.history.note, self.share.history.broken
        try:
            await self._open(messages, expected=self.machine.channel_key.public_hex)
        except RillnodeError as error:
            note(self.name, "refused", error.code)
        else:
            broken("impostor", f"{self.name} has a channel to {self.far}, and expects another")
        try:
            channel = await self._open(messages, key=ChannelKey(self.machine.entropy(KEY_BYTES)))
            await channel.ask("echo", b"not allowed", timeout_seconds=REFUSED_SECONDS)
        except RillnodeError as error:
            note(self.name, "refused", error.code)
        else:
            broken("grant-ignored", f"{self.name} is answered in a channel that it may not open")
        if not self._way:
            await self._cross(messages)

    async def _cross(self, messages: Messages) -> None:
        """See that a channel takes nothing that has come over another link."""
        world, history = self.share.world, self.share.history
        node = world.nodes[self.node].identity.public_hex
        identity = self.machine.identity
        other = world.session(self.machine, self.node, identity=identity, expected=node)
        try:
            await other.open()
            channel = await self._open(messages, sent_over=other.messages)
            await channel.ask("echo", b"over another link", timeout_seconds=REFUSED_SECONDS)
        except RillnodeError as error:
            history.note(self.name, "refused", error.code)
        else:
            history.broken("impostor", f"{self.name} is answered to what came over another link")
        finally:
            await other.close()
