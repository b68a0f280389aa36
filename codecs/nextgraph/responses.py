"""Defines a broker's responses to its clients.

`result` says what an answer is worth (`results.ResultCode`). A stream is any number of answers with
PARTIAL_CONTENT, at least one, and an EmptyResponse with END_OF_STREAM; without anything to send it
is a single EmptyResponse with EMPTY_STREAM or NOT_FOUND. Errors have an EmptyResponse too.

Source: the Client Protocol's specification; nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from typing import Annotated

from msgspec import Struct

from rillnode.codecs.bare import I64, U16, U64
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.types import V0, BlockId, ObjectId, PublicKey, RepoHash


class EmptyResponse(Struct):
    """Nothing but the result."""


class TopicSubRes(Struct):
    """A topic subscribed to: its heads, whether as its publisher, and how many commits it has."""

    topic: PublicKey
    known_heads: list[ObjectId]
    publisher: bool
    commits_nbr: U64


class RepoOpened(Struct):
    """The topics of a repo that was pinned or opened."""

    topics: list[Annotated[TopicSubRes, V0]]


class TopicSyncRes(Struct):
    """One item of a topic's synchronization; brokers send events only."""

    item: Annotated[Event, V0] | Annotated[Block, V0]


class BlocksFound(Struct):
    """The blocks that the broker has, and those that it has not.

    Attributes:
        found: ids of the blocks that it has.
        missing: ids of those that it has not.
    """

    found: list[BlockId]
    missing: list[BlockId]


class RepoPinStatus(Struct):
    """A repo that is pinned."""

    hash: RepoHash
    expose_outer: bool
    topics: list[Annotated[TopicSubRes, V0]]


ResponseContent = (
    EmptyResponse
    | Annotated[Block, V0]
    | RepoOpened
    | Annotated[TopicSubRes, V0]
    | Annotated[TopicSyncRes, V0]
    | Annotated[BlocksFound, V0]
    | Annotated[RepoPinStatus, V0]
)


class ClientResponse(Struct):
    """An answer to the request with the same id; `result` is a `results.ResultCode`."""

    id: I64
    result: U16
    content: ResponseContent
