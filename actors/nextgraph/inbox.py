"""Inboxes: letters from users of one store to the owner of another, kept until they are fetched.

Who has registered an inbox gets its letters as they come; the others wait, and are fetched one by
one. A letter leaves the store after it was handed to the connection, so that a crash between the
two brings it again rather than loses it.
"""

from dataclasses import dataclass

from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import ErrandActor, Found, Steps
from rillnode.actors.nextgraph.records import Letters, name_of, pack, unpack
from rillnode.actors.nextgraph.session import Asked, Forwarded, Gone, Refusal, Session
from rillnode.actors.storage import GetRecord, Operation, PutRecords
from rillnode.actors.system import Cell
from rillnode.codecs.limits import NEXTGRAPH_LETTERS_BYTES_MAX, NEXTGRAPH_LETTERS_MAX
from rillnode.codecs.nextgraph.client import ClientMessage, InboxReceive
from rillnode.codecs.nextgraph.inbox import LETTER, InboxMessage, inbox_signature_holds
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import InboxPost, InboxRegister, inbox_register_holds
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import (
    NIL_OVERLAY,
    GlobalOverlay,
    InnerOverlay,
    OverlayId,
)

Inbox = tuple[str, bytes]
"""An overlay as records name it, and the inbox's key."""


@dataclass(frozen=True, slots=True)
class Pop:
    """A client asks for one letter of its inboxes; there is no answer where none waits."""

    session: Session


class InboxActor(ErrandActor):
    """All inboxes of a broker."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context.streams.store)
        self._context = context
        self._readers: dict[Inbox, Session] = {}
        self._registered: dict[Session, dict[Inbox, None]] = {}

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take requests, and the end of connections."""
        match message:
            case Asked(content=InboxRegister() as request):
                self.answer_in_order(message, self._register(message, request))
            case Asked(content=InboxPost() as request):
                self.answer_in_order(message, self._post(message, request))
            case Pop(session=session):
                self.in_order(self._pop(session), lambda _: None)
            case Gone(session=session):
                for inbox in self._registered.pop(session, ()):
                    if self._readers.get(inbox) is session:
                        del self._readers[inbox]
            case Operation():
                self.complete(message)
            case _:
                pass

    def _register(self, asked: Asked, request: InboxRegister) -> Steps:
        if not inbox_register_holds(request):
            raise Refusal(ResultCode.INVALID_SIGNATURE)
        session, inbox = asked.session, (_overlay_name(request.overlay), request.inbox_id)
        yield (PutRecords(records=[(name_of("inbox", *inbox), session.user)]),)
        if session.attach(self.address):
            self._readers[inbox] = session
            self._registered.setdefault(session, {})[inbox] = None
        asked.answer()

    def _post(self, asked: Asked, request: InboxPost) -> Steps:
        letter = request.msg
        if not inbox_signature_holds(letter):
            raise Refusal(ResultCode.INVALID_SIGNATURE)
        own = self._context.peer.public_key
        brokers = request.to_broker
        if brokers and all(broker.peer_id != own for broker in brokers):
            raise Refusal(ResultCode.NOT_FOUND)  # it is for a broker that this one cannot reach
        inbox = (_overlay_name(letter.body.to_overlay), letter.body.to_inbox)
        reader = self._readers.get(inbox)
        if reader is None or not reader.open:
            yield from self._keep(asked, inbox, letter)
        else:
            _deliver(reader, letter, from_queue=False)
        asked.answer()

    def _keep(self, asked: Asked, inbox: Inbox, letter: InboxMessage) -> Steps:
        value = LETTER.encode(letter)
        waiting = yield from self._waiting(inbox)
        size = waiting.size + len(value)
        full = waiting.next - waiting.first >= NEXTGRAPH_LETTERS_MAX
        if full or size > NEXTGRAPH_LETTERS_BYTES_MAX:
            self._context.counters["inbox.full"] += 1
            raise Refusal(ResultCode.STORAGE_ERROR)
        after = Letters(first=waiting.first, next=waiting.next + 1, size=size)
        records = [
            (name_of("letters", *inbox), pack(after)),
            (_letter_name(inbox, waiting.next), value),
        ]
        yield (PutRecords(records=records),)

    def _pop(self, session: Session) -> Steps:
        for inbox in tuple(self._registered.get(session, ())):
            waiting = yield from self._waiting(inbox)
            if waiting.first == waiting.next:
                continue
            name = _letter_name(inbox, waiting.first)
            get = GetRecord(key=name)
            yield (get,)
            value = get.value or b""
            if value:
                _deliver(session, LETTER.decode(value), from_queue=True)
            size = waiting.size - len(value)
            after = Letters(first=waiting.first + 1, next=waiting.next, size=size)
            yield (PutRecords(records=[(name_of("letters", *inbox), pack(after)), (name, None)]),)
            return

    def _waiting(self, inbox: Inbox) -> Found[Letters]:
        get = GetRecord(key=name_of("letters", *inbox))
        yield (get,)
        return Letters() if get.value is None else unpack(get.value, Letters)


def _deliver(session: Session, letter: InboxMessage, *, from_queue: bool) -> None:
    message = ClientMessage(NIL_OVERLAY, InboxReceive(letter, from_queue))
    connection = session.connection
    connection.base.post(connection, Forwarded(encode_message(message)))


def _overlay_name(overlay: OverlayId) -> str:
    if isinstance(overlay, GlobalOverlay):
        return "global"
    kind = "inner" if isinstance(overlay, InnerOverlay) else "outer"
    return f"{kind}-{overlay.id.hex()}"


def _letter_name(inbox: Inbox, number: int) -> str:
    return name_of("letter", *inbox, f"{number:016x}")
