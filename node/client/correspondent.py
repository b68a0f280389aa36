"""Exchanges messages with workers, for a client and for a secure channel alike."""

from rillnode.codecs import arguments
from rillnode.codecs.routing.routes import Route, local
from rillnode.node.client.mailbox import MAILBOX_MESSAGES, Mailbox
from rillnode.node.client.messages import ANSWER_SECONDS, Answer, Messages, as_way


class Correspondent:
    """Sends, asks, and has mailboxes.

    Attributes:
        messages: messages to any worker, and the local addresses that others come to.
    """

    def __init__(self, messages: Messages) -> None:
        self.messages = messages

    async def send(
        self, route: Route | str, payload: bytes, *, return_address: bytes | None = None
    ) -> None:
        """Send a message along a route; nothing tells whether it arrives.

        Args:
            route: addresses of workers, other nodes included, or its text: `peer/core;echo` or
                `1#host:4000;echo`; in a channel, as the node at its other end knows them.
            payload: handed on as it is.
            return_address: where answers are to come to: that of a `mailbox`; None: nowhere.

        Raises:
            ArgumentError: something is of another type.
            CodecError: the text is no route.
            RequestError: the message is too large; `message.route`, the route has no address.
            TransportError: there is no link now, or the client or channel is closed.
        """
        if return_address is not None:
            arguments.octets("return_address", return_address)
        back = () if return_address is None else (local(return_address),)
        self.messages.send(as_way(route), payload, back)

    async def ask(
        self, route: Route | str, payload: bytes, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Answer:
        """Send a message along a route, as `send` does, and wait for what comes back.

        When a client's link to its node is lost meanwhile, the message is sent again on the next.
        A channel ends with the link.

        Raises:
            CodecError: the text is no route.
            RequestError: the node, or a peer behind it, could not hand the message on
                (`address.unknown`, `peer.unreachable`), or it is too large; `message.route`, the
                route has no address.
            ActorError: `message.timeout`, nothing has come back.
            TransportError: the client or channel is closed, or closes meanwhile.
        """
        arguments.seconds("timeout_seconds", timeout_seconds)
        wire = await self.messages.ask(as_way(route), payload, seconds=timeout_seconds)
        return Answer(wire.return_route, wire.payload)

    def mailbox(self, *, messages_max: int = MAILBOX_MESSAGES) -> Mailbox:
        """Have an address to which messages come unasked: an async iterator of them.

        Args:
            messages_max: messages that may wait, of 16 MiB together; further ones are dropped.

        Raises:
            TransportError: by the iterator, after what has come: the client or channel is closed.
        """
        if arguments.whole("messages_max", messages_max) < 1:
            raise arguments.refused("messages_max", "is at least 1", messages_max)
        return Mailbox(self.messages, messages_max)
