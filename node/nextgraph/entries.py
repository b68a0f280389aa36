"""Tells tables what NextGraph events say: in clear, and with a branch's key.

A commit's body may be JSON, as programs write it. NextGraph's own clients write other things: of
these, what they do to a graph is told as JSON.

    {"inserts": [{"subject": "did:ng:..", "predicate": "..", "object": "5", "datatype": ".."}],
     "removes": []}

An object without `datatype` is an IRI.
"""

from typing import Final, Self

import msgspec
from msgspec import Struct

from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.bodies import (
    BodyType,
    LanguageText,
    PlainText,
    Transaction,
    Triple,
    TypedText,
    body_type,
    transaction_of,
)
from rillnode.codecs.nextgraph.branch_keys import BranchKeys, read_lines
from rillnode.codecs.nextgraph.entry_key import key_of_topic
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.types import DirectPeer, ForwardedPeer, PeerId
from rillnode.node.entries import (
    Decoded,
    EntryReader,
    Metadata,
    Unreadable,
    is_json,
    number_within,
)

_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"
_LANGUAGE_STRING: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
_TRANSACTIONS: Final = (BodyType.ASYNC_TRANSACTION, BodyType.SYNC_TRANSACTION)


class Statement(Struct, omit_defaults=True):
    """A triple, as JSON has it."""

    subject: str
    predicate: str
    object: str
    datatype: str = ""
    language: str = ""


class GraphChange(Struct):
    """A transaction on a graph, as JSON has it."""

    inserts: list[Statement]
    removes: list[Statement]


class NextgraphEntries(EntryReader):
    """Reads NextGraph events, whose contents are encrypted.

    Args:
        keys: open them; None: none does.
    """

    kind = EntryKind.NEXTGRAPH

    def __init__(self, keys: BranchKeys | None = None) -> None:
        self._keys = keys

    def with_keys(self, text: bytes) -> Self:
        """A reader with branches' keys, one a line; see `branch_keys`."""
        return type(self)(BranchKeys(read_lines(text)))

    def metadata(self, data: bytes) -> Metadata:
        """What an event says in clear."""
        event = EVENT.decode(data)
        content = event.content
        return Metadata(
            publisher=_peer_text(content.publisher),
            chain=content.topic.hex(),
            # Delta has no unsigned numbers; a sequence that large is not one that was counted.
            seq=number_within(content.seq),
            sig=event.peer_sig,
            key=key_of_topic(content.topic),
        )

    def decoded(self, data: bytes) -> Decoded:
        """An event by its names, and by its commit's body where there is a key and that is JSON."""
        event = EVENT.decode(data)
        content = event.content
        publisher, chain = _peer_text(content.publisher), content.topic.hex()
        text, fault = None, None
        try:
            body = self._body(event)
            text = None if body is None else _text(body)
        except _NoJson:
            pass
        except Unreadable as error:
            fault = str(error)
        return Decoded(
            event_id=f"{chain}/{publisher}/{content.seq}",
            publisher=publisher,
            chain=chain,
            seq=number_within(content.seq),
            format="binary" if text is None else "json",
            content=text,
            data=data if text is None else None,
            error=fault,
        )

    def payload(self, data: bytes) -> bytes:
        """The body of an event's commit as JSON, where there is a key for it."""
        event = EVENT.decode(data)
        body = self._body(event)
        if body is None:
            topic = event.content.topic.hex()
            raise Unreadable(f"the event is encrypted, and there is no key for topic {topic}")
        return _text(body).encode()

    def _body(self, event: Event) -> bytes | None:
        """The body of an event's commit; None where there is no key for it.

        Raises:
            Unreadable: there is one, and it is not this event's, or the event is forged or broken.
        """
        if self._keys is None:
            return None
        try:
            opened = self._keys.open(event)
        except CodecError as error:
            raise Unreadable(f"the event does not decrypt: {error.text}") from None
        if opened is None and self._keys.knows(event.content.topic):
            topic = event.content.topic.hex()
            raise Unreadable(f"the event does not decrypt with the key for topic {topic}")
        return None if opened is None else opened.body


class _NoJson(Unreadable):
    """Why what was decrypted is no JSON."""


def _text(body: bytes) -> str:
    """A commit's body as JSON.

    Raises:
        _NoJson: it is none, and is not told as such.
    """
    kind = body_type(body)
    if kind is None:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = ""
        if not is_json(text):
            raise _NoJson("the commit's body is no JSON")
        return text
    if kind not in _TRANSACTIONS:
        raise _NoJson(f"the commit is NextGraph's {_name_of(kind)}, which is not told as JSON")
    try:
        return _graph_text(transaction_of(body))
    except CodecError as error:
        raise Unreadable(f"the commit's transaction cannot be read: {error}") from None


def _name_of(kind: int) -> str:
    try:
        return BodyType(kind).name
    except ValueError:
        return f"TYPE_{kind}"


def _graph_text(transaction: Transaction) -> str:
    if (document := transaction.document) is not None:
        raise _NoJson(
            f"the commit changes a document by {document.kind.name}, which is not told as JSON"
        )
    graph = transaction.graph
    if graph is None:
        raise _NoJson("the commit changes nothing")
    change = GraphChange([*map(_statement, graph.inserts)], [*map(_statement, graph.removes)])
    return msgspec.json.encode(change).decode()


def _statement(triple: Triple) -> Statement:
    subject, predicate, value = triple.subject, triple.predicate, triple.object
    if isinstance(value, str):
        return Statement(subject, predicate, value)
    match value.content:
        case PlainText(text):
            return Statement(subject, predicate, text, _STRING)
        case LanguageText(text, language):
            return Statement(subject, predicate, text, _LANGUAGE_STRING, language)
        case TypedText(text, datatype):
            return Statement(subject, predicate, text, datatype)


def _peer_text(peer: PeerId) -> str:
    """A peer's key, or what hides it, hex."""
    match peer:
        case DirectPeer() | ForwardedPeer():
            return peer.key.hex()
        case _:
            return peer.digest.hex()
