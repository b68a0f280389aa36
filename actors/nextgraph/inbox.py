"""Inboxes: letters from users of one store to the owner of another, kept until they are fetched.

Who has registered an inbox gets its letters as they come, also those that come to another node of
the same store; the others wait, and are fetched one by one. A letter leaves the store after it was
handed to the connection, so that a crash between the two brings it again rather than loses it.
"""

from dataclasses import dataclass
from functools import partial
from typing import assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import Found, Steps, anew
from rillnode.actors.nextgraph.news import NewsActor
from rillnode.actors.nextgraph.records import Letters, name_of, pack, unpack
from rillnode.actors.nextgraph.session import Asked, Forwarded, Gone, Refusal, Session
from rillnode.actors.storage import GetRecord, Operation, PutRecords
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


class InboxActor(NewsActor):
    """All inboxes of a broker."""

    followed = "letters"
    essential = True

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context.streams.store)
        self._context = context
        self._readers: dict[Inbox, Session] = {}
        self._registered: dict[Session, dict[Inbox, None]] = {}
        # Letters from this number on have come to other nodes since somebody reads the inbox here.
        self._fresh: dict[Inbox, int] = {}

    def handle(self, message: Asked | Pop | Gone | Operation, sender: Cell | None) -> None:
        """Take requests, and the end of connections."""
        match message:
            case Asked():
                self._serve(message)
            case Pop(session=session):
                self.in_order(self._pop(session), lambda _: None)
            case Gone(session=session):
                for inbox in self._registered.pop(session, ()):
                    if self._readers.get(inbox) is session:
                        del self._readers[inbox]
                        self._fresh.pop(inbox, None)
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    def _serve(self, asked: Asked) -> None:
        match asked.content:
            case InboxRegister() as request:
                self.answer_in_order(asked, self._register(asked, request))
            case InboxPost() as request:
                self.answer_in_order(asked, self._post(asked, request))
            case _:
                asked.refuse(ResultCode.INVALID_REQUEST)  # it concerns no inbox

    def _register(self, asked: Asked, request: InboxRegister) -> Steps:
        if not inbox_register_holds(request):
            raise Refusal(ResultCode.INVALID_SIGNATURE)
        session, inbox = asked.session, (_overlay_name(request.overlay), request.inbox_id)
        yield (PutRecords(records=[(name_of("inbox", *inbox), session.user)]),)
        fresh = (yield from self._waiting(inbox))[0].next if self._context.shared else 0
        if session.attach(self.address):
            self._readers[inbox] = session
            self._fresh[inbox] = fresh
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
            yield from anew(partial(self._keep, inbox, letter))
        else:
            _deliver(reader, letter, from_queue=False)
        asked.answer()

    def _keep(self, inbox: Inbox, letter: InboxMessage) -> Steps:
        value = LETTER.encode(letter)
        waiting, version = yield from self._waiting(inbox)
        size = waiting.size + len(value)
        full = waiting.next - waiting.first >= NEXTGRAPH_LETTERS_MAX
        if full or size > NEXTGRAPH_LETTERS_BYTES_MAX:
            self._context.counters["inbox.full"] += 1
            raise Refusal(ResultCode.STORAGE_ERROR)
        after = Letters(first=waiting.first, next=waiting.next + 1, size=size)
        letters = (_letter_name(inbox, waiting.next), value)
        yield self._change(inbox, after, version, letters)

    def _pop(self, session: Session) -> Steps:
        for inbox in tuple(self._registered.get(session, ())):
            waiting, _ = yield from self._waiting(inbox)
            if waiting.first == waiting.next:
                continue
            value = yield from self._letter(inbox, waiting.first)
            if value:
                _deliver(session, LETTER.decode(value), from_queue=True)
            yield from anew(partial(self._drop, inbox, waiting.first, len(value)))
            return

    def _drop(self, inbox: Inbox, number: int, size: int) -> Steps:
        """Remove the first letter, unless it is no more."""
        waiting, version = yield from self._waiting(inbox)
        if waiting.first == number:
            after = Letters(first=number + 1, next=waiting.next, size=waiting.size - size)
            yield self._change(inbox, after, version, (_letter_name(inbox, number), None))

    def _letter(self, inbox: Inbox, number: int) -> Found[bytes]:
        """A letter as it is stored; empty where it is no more."""
        get = GetRecord(key=_letter_name(inbox, number))
        yield (get,)
        return get.value or b""

    def _waiting(self, inbox: Inbox) -> Found[tuple[Letters, int]]:
        """What waits in an inbox, and the version of that record."""
        get = GetRecord(key=name_of("letters", *inbox))
        yield (get,)
        letters = Letters() if get.value is None else unpack(get.value, Letters)
        return letters, get.version

    def _change(
        self, inbox: Inbox, after: Letters, version: int, *letters: tuple[str, bytes | None]
    ) -> tuple[PutRecords]:
        """Store letters or remove them, where no other node was first."""
        name = name_of("letters", *inbox)
        return (PutRecords(records=[(name, pack(after)), *letters], seen=[(name, version)]),)

    # Letters that came to other nodes --------------------------------------------------------

    def heard(self, name: str, value: bytes | None) -> None:
        """Hand over what has come for who reads an inbox here."""
        overlay, _, inbox = name.rpartition("/")
        key = overlay, bytes.fromhex(inbox)
        reader = self._readers.get(key)
        if reader is not None and value is not None:
            # It is behind what is kept once somebody at yet another node has taken in the same.
            self._fresh[key] = min(self._fresh[key], unpack(value, Letters).next)
            given = set[tuple[int, bytes]]()
            self.in_order(anew(partial(self._take_in, reader, key, given)), lambda _: None)

    def _take_in(self, reader: Session, inbox: Inbox, given: set[tuple[int, bytes]]) -> Steps:
        """Hand letters over and remove them; `given` are those of an earlier attempt."""
        waiting, version = yield from self._waiting(inbox)
        first = max(waiting.first, self._fresh.get(inbox, waiting.next))
        if first >= waiting.next:
            return
        size = waiting.size
        for number in range(first, waiting.next):
            value = yield from self._letter(inbox, number)
            size -= len(value)
            # By now another letter may have the number of one that somebody else has taken in.
            if value and (number, value) not in given:
                given.add((number, value))
                _deliver(reader, LETTER.decode(value), from_queue=False)
        after = Letters(first=waiting.first, next=first, size=size)
        removed = [(_letter_name(inbox, number), None) for number in range(first, waiting.next)]
        yield self._change(inbox, after, version, *removed)


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
