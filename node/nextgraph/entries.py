"""Tells tables what NextGraph events say in clear."""

from rillnode.codecs.entries import EntryKind
from rillnode.codecs.nextgraph.entry_key import key_of_topic
from rillnode.codecs.nextgraph.events import EVENT
from rillnode.codecs.nextgraph.types import DirectPeer, ForwardedPeer, PeerId
from rillnode.node.entries import (
    Decoded,
    EntryReader,
    Metadata,
    Unreadable,
    number_within,
)


class NextgraphEntries(EntryReader):
    """Reads NextGraph events, whose contents are encrypted."""

    kind = EntryKind.NEXTGRAPH

    def metadata(self, data: bytes) -> Metadata:
        """What an event says."""
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
        """An event, by its names alone."""
        content = EVENT.decode(data).content
        publisher, chain = _peer_text(content.publisher), content.topic.hex()
        return Decoded(
            event_id=f"{chain}/{publisher}/{content.seq}",
            publisher=publisher,
            chain=chain,
            seq=number_within(content.seq),
            format="binary",
            data=data,
        )

    def payload(self, data: bytes) -> bytes:
        """Nothing: nobody here has its key."""
        EVENT.decode(data)
        raise Unreadable("the event is encrypted, and there is no key for it")


def _peer_text(peer: PeerId) -> str:
    """A peer's key, or what hides it, hex."""
    match peer:
        case DirectPeer() | ForwardedPeer():
            return peer.key.hex()
        case _:
            return peer.digest.hex()
