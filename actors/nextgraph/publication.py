"""Describes an event to a topic: its commit, what this comes after, the blocks to store."""

from collections.abc import Sequence
from dataclasses import dataclass

from rillnode.actors.nextgraph.records import name_of, pack_block
from rillnode.actors.nextgraph.session import Asked
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.blocks import block_id
from rillnode.codecs.nextgraph.commits import commit_header
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_PARENTS_MAX


@dataclass(frozen=True, slots=True)
class Publish:
    """An event whose signatures hold.

    Attributes:
        allowed: whether the user may publish on the topic.
        commit: the id of the event's commit.
        parents: the commits that it comes after; None where that cannot be read.
        records: the event's blocks, as they are stored.
        fenced: so often another node has written the topic's log first.
    """

    asked: Asked
    event: Event
    allowed: bool
    commit: bytes
    parents: Sequence[bytes] | None
    records: Sequence[tuple[str, bytes | None]]
    fenced: int = 0


def publication(asked: Asked, overlay: bytes, event: Event, *, allowed: bool) -> Publish:
    """Look into an event as far as a broker can; `overlay` is the inner one's id."""
    content = event.content
    blocks = [pack_block(content.topic, block) for block in content.blocks]
    records = [(name_of("published", overlay, one), value) for one, value in blocks]
    commit, _ = blocks[0]
    return Publish(asked, event, allowed, commit, _parents(event), records)


def stored_event(entry: Entry) -> tuple[Event, bytes, list[bytes]]:
    """Read an entry of a topic's log: the event, its commit, and what this comes after.

    Raises:
        CodecError: it is no event that a broker has stored.
    """
    event = EVENT.decode(entry.data)
    parents = _parents(event) if event.content.blocks else None
    if entry.kind is not EntryKind.NEXTGRAPH or parents is None:
        raise CodecError("nextgraph.event", "the entry is no event of a topic")
    return event, block_id(event.content.blocks[0]), parents


def _parents(event: Event) -> list[bytes] | None:
    try:
        header = commit_header(event.content.blocks)
    except CodecError:
        return None
    parents = list(dict.fromkeys(header.acks + header.nacks))
    return parents if len(parents) <= NEXTGRAPH_PARENTS_MAX else None
