"""NextGraph for Python applications: a client of a rillnode, or of any other NextGraph broker.

from rillnode import nextgraph

async with await nextgraph.connect("ws://127.0.0.1:1440", broker=PEER_ID, user=USER) as client:
    async for event in client.sync(OVERLAY, TOPIC):
        print(nextgraph.open_event(event, BRANCH).body)
"""

from rillnode.node.installed import needs_extra

try:
    from rillnode.codecs.keys import Identity
    from rillnode.codecs.nextgraph.blocks import Block, block_id
    from rillnode.codecs.nextgraph.bootstrap import Invitation, parse_invitation
    from rillnode.codecs.nextgraph.commits import CommitHeader
    from rillnode.codecs.nextgraph.events import Event
    from rillnode.codecs.nextgraph.inbox import LocatedBroker
    from rillnode.codecs.nextgraph.objects import Object, join_object, split_object
    from rillnode.codecs.nextgraph.overlays import (
        convergence_key,
        inner_overlay,
        outer_overlay,
        repo_hash,
    )
    from rillnode.codecs.nextgraph.responses import BlocksFound
    from rillnode.codecs.nextgraph.text_ids import format_id, parse_id
    from rillnode.codecs.nextgraph.types import (
        GlobalOverlay,
        InnerOverlay,
        ObjectRef,
        OuterOverlay,
        ReadOnlyAccess,
        ReadWriteAccess,
        WriteOnlyAccess,
    )
    from rillnode.node.nextgraph.client import (
        Branch,
        Client,
        Inbox,
        Inboxes,
        Objects,
        OpenedEvent,
        Published,
        Subscription,
        connect,
        fetch_objects,
        fetch_wallet,
        make_commit,
        open_event,
    )
except ModuleNotFoundError as error:
    raise needs_extra("nextgraph", error) from error

__all__ = [
    "Block",
    "BlocksFound",
    "Branch",
    "Client",
    "CommitHeader",
    "Event",
    "GlobalOverlay",
    "Identity",
    "Inbox",
    "Inboxes",
    "InnerOverlay",
    "Invitation",
    "LocatedBroker",
    "Object",
    "ObjectRef",
    "Objects",
    "OpenedEvent",
    "OuterOverlay",
    "Published",
    "ReadOnlyAccess",
    "ReadWriteAccess",
    "Subscription",
    "WriteOnlyAccess",
    "block_id",
    "connect",
    "convergence_key",
    "fetch_objects",
    "fetch_wallet",
    "format_id",
    "inner_overlay",
    "join_object",
    "make_commit",
    "open_event",
    "outer_overlay",
    "parse_id",
    "parse_invitation",
    "repo_hash",
    "split_object",
]
