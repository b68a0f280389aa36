"""Defines a broker's responses to its clients.

`result` says what an answer is worth (`results.ResultCode`). A stream is any number of answers with
PARTIAL_CONTENT, at least one, and an EmptyResponse with END_OF_STREAM; without anything to send it
is a single EmptyResponse with EMPTY_STREAM or NOT_FOUND. Errors have an EmptyResponse too.

Source: the Client Protocol's specification; nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from dataclasses import dataclass
from typing import Annotated

from rillnode.codecs.bare import I64, U16, U64
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.types import V0, BlockId, ObjectId, PublicKey, RepoHash


@dataclass(slots=True)
class EmptyResponse:
    """Nothing but the result."""


@dataclass(slots=True)
class TopicSubRes:
    """A topic subscribed to: its heads, whether as its publisher, and how many commits it has."""

    topic: PublicKey
    known_heads: list[ObjectId]
    publisher: bool
    commits_nbr: U64


@dataclass(slots=True)
class RepoOpened:
    """The topics of a repo that was pinned or opened."""

    topics: list[Annotated[TopicSubRes, V0]]


@dataclass(slots=True)
class TopicSyncRes:
    """One item of a topic's synchronization; brokers send events only."""

    item: Annotated[Event, V0] | Annotated[Block, V0]


@dataclass(slots=True)
class BlocksFound:
    """The blocks that the broker has, and those that it has not."""

    found: list[BlockId]
    missing: list[BlockId]


@dataclass(slots=True)
class RepoPinStatus:
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


@dataclass(slots=True)
class ClientResponse:
    """An answer to the request with the same id; `result` is a `results.ResultCode`."""

    id: I64
    result: U16
    content: ResponseContent
