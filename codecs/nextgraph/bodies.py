"""Bodies of commits as NextGraph's clients write them: what was done to a branch.

    ObjectContent = V0 { CommitBody = V0 { union } }        tags 0, 1, 0, then the body's type

Only the types that say something to readers outside of a client are decoded: transactions on a
graph, and what hands on the keys of other branches. Programs may put anything else into a commit's
body, such as JSON: it begins with another byte.

Source: nextgraph-rs 9ea23f60, engine/repo/src/types.rs and engine/verifier/src/types.rs, and what
real clients sent. Types after 28 have other numbers in other releases.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import U8, Codec, Tags
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.types import V0

_BEGIN: Final = b"\x00\x01\x00"


class BodyType(IntEnum):
    """The purpose of a commit, by the same number in all releases."""

    REPOSITORY = 0
    ROOT_BRANCH = 1
    UPDATE_ROOT_BRANCH = 2
    ROOT_CAP_REFRESH = 3
    ADD_MEMBER = 4
    REMOVE_MEMBER = 5
    ADD_PERMISSION = 6
    REMOVE_PERMISSION = 7
    ADD_BRANCH = 8
    REMOVE_BRANCH = 9
    ADD_NAME = 10
    REMOVE_NAME = 11
    DELETE = 12
    BRANCH = 13
    BRANCH_CAP_REFRESH = 14
    UPDATE_BRANCH = 15
    SNAPSHOT = 16
    ASYNC_TRANSACTION = 17
    SYNC_TRANSACTION = 18
    ADD_FILE = 19
    REMOVE_FILE = 20
    COMPACT = 21
    ASYNC_SIGNATURE = 22
    CAP_REFRESHED = 23
    SYNC_SIGNATURE = 24
    ADD_REPO = 25
    REMOVE_REPO = 26
    ADD_LINK = 27
    REMOVE_LINK = 28


class PlainText(Struct):
    """A literal without more."""

    value: str


class LanguageText(Struct):
    """A literal in a language."""

    value: str
    language: str


class TypedText(Struct):
    """A literal of a datatype, an IRI."""

    value: str
    datatype: str


class Literal(Struct):
    """A value in a graph."""

    content: PlainText | LanguageText | TypedText


class Triple(Struct):
    """A statement of a graph. Clients name blank nodes, so that there are none."""

    subject: Annotated[str, Tags(0)]
    predicate: str
    object: Annotated[str | Literal, Tags(0, 2)]


class GraphTransaction(Struct):
    """Statements that a commit adds and takes away."""

    inserts: list[Triple]
    removes: list[Triple]


class DocumentKind(IntEnum):
    """The library in whose format a transaction changes a document."""

    Y_MAP = 0
    Y_ARRAY = 1
    Y_XML = 2
    Y_TEXT = 3
    AUTOMERGE = 4


class DocumentTransaction(Struct):
    """A change of a document in a library's own format."""

    kind: DocumentKind
    update: bytes


class Transaction(Struct):
    """The changes of a commit; the first field says which of both others is there."""

    has: U8
    graph: GraphTransaction | None
    document: DocumentTransaction | None


TRANSACTION: Final[Codec[Transaction]] = Codec(Transaction, serde=True)
_SEALED: Final[Codec[bytes]] = Codec(Annotated[bytes, V0], serde=True)


def body_type(body: bytes) -> int | None:
    """The type of a commit's body; None: no client of NextGraph has written it."""
    at = len(_BEGIN)
    return body[at] if body.startswith(_BEGIN) and len(body) > at else None


def inner_of(body: bytes) -> bytes:
    """The body after its type."""
    return body[len(_BEGIN) + 1 :]


def transaction_of(body: bytes) -> Transaction:
    """The transaction that a body of one of its two types is.

    Raises:
        CodecError: it is malformed, or has what graphs of clients do not have.
    """
    if body_type(body) not in (BodyType.ASYNC_TRANSACTION, BodyType.SYNC_TRANSACTION):
        raise CodecError("commit.body", "the commit is no transaction")
    return TRANSACTION.decode(_SEALED.decode(inner_of(body)))
