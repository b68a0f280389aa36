"""Key-exchange streams: routed to who is subscribed, never stored, open to all.

There is one for every Ethereum address, without anybody having created it. Who may ask whom for
keys, or send them, follows from the stream that the keys are for.
"""

from typing import Final, assert_never

from msgspec.structs import replace

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.streamr.admission import check_message, ethereum_principal, may
from rillnode.actors.streamr.answering import (
    not_subscribed,
    published,
    subscribed,
    unsubscribed,
)
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.fanout import Fanout
from rillnode.actors.streamr.requests import (
    PERMISSION_DENIED,
    REQUEST_FAILED,
    Publication,
    Publish,
    Subscribe,
    Unsubscribe,
)
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.streamr.key_exchange import (
    DatedKeyError,
    DatedKeyRequest,
    DatedKeyResponse,
    GroupKeyAnnounce,
    GroupKeyRequest,
    GroupKeyReset,
    GroupKeyRotate,
    decode_key_content,
    owner_of,
)
from rillnode.codecs.streamr.stream_message import (
    Layout,
    MessageType,
    SignatureType,
    StreamMessage,
)

_STREAMS_LOOKED_AT: Final = 1_000
"""How many streams of a publisher are gone through for a reset that names none."""

_PAIRS_MAX: Final = 10_000
"""Of senders and recipients of key messages before version 32, whose errors name no stream."""


class KeyExchangeActor(Worker):
    """All key-exchange streams of a node."""

    mailbox_messages_max = 16_384
    on_failure = "resume"
    essential = True

    def __init__(self, context: StreamrContext) -> None:
        self._context = context
        self._clients: dict[str, Fanout] = {}
        self._heard_of: dict[tuple[str, str], None] = {}

    def handle(self, message: Publish | Subscribe | Unsubscribe, sender: Cell | None) -> None:
        """Take what a relay takes."""
        match message:
            case Publish():
                message.asker = message.asker or sender
                self._publish(message)
            case Subscribe():
                self._subscribe(message)
            case Unsubscribe(stream_id=stream_id):
                clients = self._clients.get(stream_id)
                if clients is not None:
                    clients.remove(message.outlet)
                    if not clients:
                        del self._clients[stream_id]
                unsubscribed(message)
            case _:
                assert_never(message)

    def _subscribe(self, request: Subscribe) -> None:
        if request.partition != 0:
            error = RequestError(REQUEST_FAILED, "Key-exchange streams have only partition 0")
            not_subscribed(self.system, request, error)
            return
        if not request.over:
            clients = self._clients.get(request.stream_id)
            if clients is None:
                clients = Fanout(self._context.counters, request.stream_id, 0)
                self._clients[request.stream_id] = clients
            clients.add(request.outlet)
        subscribed(request)

    def _publish(self, request: Publish) -> None:
        refused: list[tuple[Publication, RequestError]] = []
        for publication in request.publications:
            try:
                message = self._check(publication.message)
            except RequestError as error:
                refused.append((publication, error))
                continue
            clients = self._clients.get(message.id.stream_id)
            if clients is not None:
                clients.broadcast([message])
                while clients.is_behind:  # a handful, which are an address's own
                    clients.go_on()
                unreached = clients.undeliverable(message)
                if unreached is not None:
                    refused.append((publication, unreached))
        published(self.system, request, refused)

    def _check(self, message: StreamMessage) -> StreamMessage:
        """Check that a key message is what it claims, and that its sides belong to the stream.

        Returns:
            The message, in the layout that its content belongs to where type 30 has two of them.

        Raises:
            RequestError: FUTURE_TIMESTAMP, REQUEST_FAILED, PERMISSION_DENIED.
        """
        if message.id.partition != 0:
            raise RequestError(REQUEST_FAILED, "Key-exchange streams have only partition 0")
        if message.message_type == MessageType.GROUP_KEY_ROTATE:
            raise RequestError(REQUEST_FAILED, "A rotation is sent on the stream that it is about")
        if message.signature_type == SignatureType.NONE:
            raise RequestError(REQUEST_FAILED, "Key messages must be signed")
        check_message(message, self._context.streams.clock.now_ms())
        try:
            content = decode_key_content(message.message_type, message.content)
        except CodecError as error:
            raise RequestError(REQUEST_FAILED, f"Not a key message: {error.text}") from None
        assert not isinstance(content, GroupKeyRotate)  # its type was refused above
        sender = ethereum_principal(message.id.publisher_id)
        recipient = ethereum_principal(owner_of(message.id.stream_id))
        if isinstance(content, DatedKeyError):
            if (recipient, sender) not in self._heard_of:
                text = f"{recipient} has sent {sender} nothing that could be wrong"
                raise RequestError(PERMISSION_DENIED, text)
            return message
        asks = isinstance(content, GroupKeyRequest | DatedKeyRequest)
        publisher, subscriber = (recipient, sender) if asks else (sender, recipient)
        self._check_sides(publisher, subscriber, content.stream_id)
        if isinstance(content, DatedKeyRequest | DatedKeyResponse):
            self._heard_of[sender, recipient] = None
            if len(self._heard_of) > _PAIRS_MAX:
                del self._heard_of[next(iter(self._heard_of))]
        match content:
            case GroupKeyReset():
                return replace(message, layout=Layout.SPECIFICATION)
            case GroupKeyAnnounce():
                return replace(message, layout=Layout.RELEASED)
            case _:
                return message

    def _check_sides(self, publisher: str, subscriber: str, stream_id: str) -> None:
        """Check that one may publish to the stream, and the other subscribe to it.

        A reset in the form of the specification's example names no stream: then any will do that
        the publisher has a grant of its own on.

        Raises:
            RequestError: PERMISSION_DENIED.
        """
        access = self._context.streams.access
        if not stream_id:
            own = access.granted(publisher)
            if len(own) <= _STREAMS_LOOKED_AT and any(
                may(access, publisher, "push", one) and may(access, subscriber, "subscribe", one)
                for one in own
            ):
                return
            text = f"{publisher} is not known to publish what {subscriber} reads: name the stream"
            raise RequestError(PERMISSION_DENIED, text)
        if not may(access, publisher, "push", stream_id):
            raise RequestError(PERMISSION_DENIED, f"{publisher} is no publisher of {stream_id}")
        if not may(access, subscriber, "subscribe", stream_id):
            raise RequestError(PERMISSION_DENIED, f"{subscriber} is no subscriber of {stream_id}")
