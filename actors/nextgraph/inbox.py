"""Inboxes: letters from users of one store to the owner of another, kept until they are fetched.

Who has registered an inbox gets its letters as they come, also those that come to another node of
the same store; the others wait, and are fetched one by one. A letter leaves the store after it was
handed to the connection, so that a crash between the two brings it again rather than loses it.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, assert_never

from msgspec.structs import replace
from thespian.actors import ActorAddress

from rillnode.actors.log import GetRecord, PutRecords
from rillnode.actors.nextgraph.actor import Question, anew
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.news import News, NewsActor
from rillnode.actors.nextgraph.records import Letters, name_of, pack, unpack
from rillnode.actors.nextgraph.session import Asked, Forwarded, Gone, Refusal, Session
from rillnode.codecs.limits import CONNECTIONS_MAX
from rillnode.codecs.nextgraph.client import ClientMessage, InboxReceive
from rillnode.codecs.nextgraph.inbox import LETTER, InboxMessage, inbox_signature_holds
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_LETTERS_BYTES_MAX, NEXTGRAPH_LETTERS_MAX
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import InboxPost, InboxRegister, inbox_register_holds
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import GlobalOverlay, InnerOverlay, OverlayId

Inbox = tuple[str, bytes]
"""An overlay as records name it, and the inbox's key."""


@dataclass(frozen=True, slots=True)
class Pop(Question[None]):
    """A client asks for one letter of its inboxes; there is no answer where none waits."""

    session: Session


@dataclass(slots=True, eq=False)
class Readers:
    """The readers of inboxes; clients register once, whatever fails here.

    Attributes:
        sessions: of each inbox, who has registered it last.
        inboxes: of each session, what it has registered, oldest first.
        fresh: letters from this number on have come to other nodes since somebody reads the inbox.
    """

    sessions: dict[Inbox, Session] = field(default_factory=dict[Inbox, Session])
    inboxes: dict[Session, dict[Inbox, None]] = field(
        default_factory=dict[Session, dict[Inbox, None]]
    )
    fresh: dict[Inbox, int] = field(default_factory=dict[Inbox, int])

    def of(self, inbox: Inbox) -> Session | None:
        """Who reads an inbox now."""
        reader = self.sessions.get(inbox)
        return None if reader is None or not reader.open else reader

    def add(self, inbox: Inbox, session: Session, fresh: int) -> None:
        """Somebody reads an inbox, in the place of who has."""
        self.sessions[inbox], self.fresh[inbox] = session, fresh
        self.inboxes.setdefault(session, {})[inbox] = None

    def remove(self, session: Session) -> None:
        """Somebody reads nothing any more."""
        for inbox in self.inboxes.pop(session, ()):
            if self.sessions.get(inbox) is session:
                del self.sessions[inbox], self.fresh[inbox]


class InboxActor(NewsActor):
    """All inboxes of a broker."""

    spare: ClassVar = {**NewsActor.spare, Gone: CONNECTIONS_MAX}

    followed = "letters"
    essential = True

    def __init__(self, context: BrokerContext, readers: Readers) -> None:
        super().__init__(context)
        self._readers = readers

    def started(self) -> None:
        """Go on for those who read, and forget who has gone while an instance failed."""
        for session in tuple(self._readers.inboxes):
            if not session.attach(self.address):
                self._readers.remove(session)
        self.listen()

    async def handle(self, message: Asked | Pop | Gone | News, sender: ActorAddress | None) -> None:
        """Take requests, letters that came to other nodes, and the end of connections."""
        match message:
            case Asked():
                await self.carry_out(message, self._serve(message))
            case Pop(session=session):
                await self.reply(sender, self._pop(session))
            case Gone(session=session):
                self._readers.remove(session)
            case News(name=name, value=value):
                await self.attempt(self._heard_of(name, value))
            case _:
                assert_never(message)

    async def _serve(self, asked: Asked) -> None:
        match asked.content:
            case InboxRegister() as request:
                await self._register(asked, request)
            case InboxPost() as request:
                await self._post(asked, request)
            case _:
                raise Refusal(ResultCode.INVALID_REQUEST)  # it concerns no inbox

    async def _register(self, asked: Asked, request: InboxRegister) -> None:
        if not inbox_register_holds(request):
            raise Refusal(ResultCode.INVALID_SIGNATURE)
        session, inbox = asked.session, (_overlay_name(request.overlay), request.inbox_id)
        await self.write(PutRecords(records=[(name_of("inbox", *inbox), session.user)]))
        waiting, _ = await self._waiting(inbox)
        if session.attach(self.address):
            self._readers.add(inbox, session, waiting.next)
        asked.answer()

    async def _post(self, asked: Asked, request: InboxPost) -> None:
        letter = request.msg
        if not inbox_signature_holds(letter):
            raise Refusal(ResultCode.INVALID_SIGNATURE)
        own = self._context.peer.public_key
        brokers = request.to_broker
        if brokers and all(broker.peer_id != own for broker in brokers):
            raise Refusal(ResultCode.NOT_FOUND)  # it is for a broker that this one cannot reach
        inbox = (_overlay_name(letter.body.to_overlay), letter.body.to_inbox)
        reader = self._readers.of(inbox)
        if reader is None:
            await anew(partial(self._keep, inbox, letter))
        else:
            _deliver(reader, letter, from_queue=False)
        asked.answer()

    async def _keep(self, inbox: Inbox, letter: InboxMessage) -> None:
        value = LETTER.encode(letter)
        waiting, version = await self._waiting(inbox)
        size = waiting.size + len(value)
        full = waiting.next - waiting.first >= NEXTGRAPH_LETTERS_MAX
        if full or size > NEXTGRAPH_LETTERS_BYTES_MAX:
            self._context.counters["inbox.full"] += 1
            raise Refusal(ResultCode.STORAGE_ERROR)
        after = _after(waiting, next=waiting.next + 1, size=size)
        letters = (_letter_name(inbox, waiting.next), value)
        await self._change(inbox, after, version, letters)

    async def _pop(self, session: Session) -> None:
        for inbox in tuple(self._readers.inboxes.get(session, ())):
            waiting, _ = await self._waiting(inbox)
            if waiting.first == waiting.next:
                continue
            value = await self._letter(inbox, waiting.first)
            if value:
                _deliver(session, LETTER.decode(value), from_queue=True)
            await anew(partial(self._drop, inbox, waiting.first, len(value)))
            return

    async def _drop(self, inbox: Inbox, number: int, size: int) -> None:
        """Remove the first letter, unless it is no more."""
        waiting, version = await self._waiting(inbox)
        if waiting.first == number:
            after = _after(waiting, first=number + 1, size=waiting.size - size)
            await self._change(inbox, after, version, (_letter_name(inbox, number), None))

    async def _letter(self, inbox: Inbox, number: int) -> bytes:
        """A letter as it is stored; empty where it is no more."""
        get = GetRecord(key=_letter_name(inbox, number))
        await self.read(get)
        return get.value or b""

    async def _waiting(self, inbox: Inbox) -> tuple[Letters, int]:
        """What waits in an inbox, and the version of that record."""
        get = GetRecord(key=name_of("letters", *inbox))
        await self.read(get)
        letters = Letters() if get.value is None else unpack(get.value, Letters)
        return letters, get.version

    async def _change(
        self, inbox: Inbox, after: Letters, version: int, *letters: tuple[str, bytes | None]
    ) -> None:
        """Store letters or remove them, where no other node was first."""
        name = name_of("letters", *inbox)
        records = [(name, pack(after)), *letters]
        await self.write(PutRecords(records=records, seen=[(name, version)]))

    # Letters that came to other nodes --------------------------------------------------------

    async def _heard_of(self, name: str, value: bytes | None) -> None:
        """Hand over what has come for who reads an inbox here."""
        overlay, _, inbox = name.rpartition("/")
        key = overlay, bytes.fromhex(inbox)
        reader, fresh = self._readers.of(key), self._readers.fresh
        if reader is not None and value is not None:
            # It is behind what is kept once somebody at yet another node has taken in the same.
            fresh[key] = min(fresh[key], unpack(value, Letters).next)
            await anew(partial(self._take_in, reader, key, set[tuple[int, bytes]]()))

    async def _take_in(self, reader: Session, inbox: Inbox, given: set[tuple[int, bytes]]) -> None:
        """Hand letters over and remove them; `given` are those of an earlier attempt."""
        waiting, version = await self._waiting(inbox)
        first = max(waiting.first, self._readers.fresh.get(inbox, waiting.next))
        if first >= waiting.next:
            return
        size = waiting.size
        for number in range(first, waiting.next):
            value = await self._letter(inbox, number)
            size -= len(value)
            # By now another letter may have the number of one that somebody else has taken in.
            if value and (number, value) not in given:
                given.add((number, value))
                _deliver(reader, LETTER.decode(value), from_queue=False)
        after = _after(waiting, next=first, size=size)
        removed = [(_letter_name(inbox, number), None) for number in range(first, waiting.next)]
        await self._change(inbox, after, version, *removed)


def _after(waiting: Letters, **changes: int) -> Letters:
    """What waits after a change; never the same twice, as its version is that of its content."""
    return replace(waiting, changes=waiting.changes + 1, **changes)


def _deliver(session: Session, letter: InboxMessage, *, from_queue: bool) -> None:
    """Hand a letter to a connection.

    Raises:
        Refusal: it takes nothing more, and is cut off.
    """
    message = ClientMessage(letter.body.to_overlay, InboxReceive(letter, from_queue))
    if not session.forward(Forwarded(encode_message(message))):
        raise Refusal(ResultCode.STORAGE_ERROR)


def _overlay_name(overlay: OverlayId) -> str:
    if isinstance(overlay, GlobalOverlay):
        return "global"
    kind = "inner" if isinstance(overlay, InnerOverlay) else "outer"
    return f"{kind}-{overlay.id.hex()}"


def _letter_name(inbox: Inbox, number: int) -> str:
    return name_of("letter", *inbox, f"{number:016x}")
