"""The listener of secure channels: answers message 1 of a handshake, and makes the channel.

What it refuses gets no answer, as from released nodes: it is logged and counted.
"""

from functools import partial
from typing import Final, assert_never, cast

from thespian.actors import ChildActorExited

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.channel import Begin, ChannelActor, ChannelContext
from rillnode.codecs.errors import CodecError, HandshakeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.ockam.channel import ChannelResponder
from rillnode.codecs.routing.routes import WireMessage, local

logger = event_logger("rillnode.actors.ockam.channel_listener")

ADDRESSES: Final = (b"SC_listener", b"api")
"""As Elixir nodes call it: in their own use, and for others since 2022."""


class ChannelListener(Worker):
    """Accepts secure channels, at `SC_listener` and `api`; one per node."""

    on_failure = "resume"

    def __init__(self, context: ChannelContext) -> None:
        self._context = context

    def handle(self, message: Delivery | ChildActorExited, sender: Cell | None) -> None:
        """Take messages 1, and the ends of channels."""
        match message:
            case Delivery(origin=origin, messages=messages, tracked=tracked):
                try:
                    self._accept(origin, messages[0])
                except (CodecError, HandshakeError) as error:
                    self._context.counters[error.code] += 1
                    extra = {"code": error.code, "reason": error.text}
                    logger.info("channel_refused", extra=extra)
                # One in a turn, as each costs several curve multiplications; the others come again.
                # They do so last: of what fails nothing comes again.
                if len(messages) > 1:
                    self._context.router.route(origin, messages[1:], tracked=tracked)
            case ChildActorExited(childAddress=cell):
                # It has said so itself, unless it never began.
                self._context.closed(cast(Cell, cell))
            case _:
                assert_never(message)

    def _accept(self, origin: Origin, wire: WireMessage) -> None:
        """Answer message 1 from a new channel's address.

        Raises:
            CodecError, HandshakeError: there will be no channel.
        """
        context, account = self._context, origin.account
        if (
            len(context.open) >= context.channels_max
            or context.per_connection[account] >= context.channels_per_connection_max
        ):
            raise CodecError("channel.limit", "there are too many channels")
        responder = ChannelResponder(
            context.key.private, wire.payload, ephemeral=context.entropy(DH_BYTES)
        )
        sealed = local(b"SC_" + context.entropy(8).hex().encode())
        plain = local(context.entropy(8).hex())
        answer = responder.message_2(plain.value)
        cell = context.system.spawn(
            partial(ChannelActor, context, origin, sealed, plain), parent=self.address
        )
        context.system.post(cell, Begin(responder))
        context.opened(cell, account)
        origin.attach(cell)
        for address in (sealed, plain):
            context.router.register(address.value, cell)
        context.router.route(origin, [WireMessage(wire.return_route, (sealed,), answer)])
