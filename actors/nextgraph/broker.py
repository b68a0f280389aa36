"""The broker put together: its actors, made once per node."""

from collections.abc import Callable
from functools import partial

from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.engine.worker import Worker
from rillnode.actors.nextgraph.blocks import BlocksActor
from rillnode.actors.nextgraph.context import BrokerContext, Table
from rillnode.actors.nextgraph.desk import ADDRESS, DeskActor
from rillnode.actors.nextgraph.followers import Appended
from rillnode.actors.nextgraph.inbox import InboxActor, Readers
from rillnode.actors.nextgraph.names import topic_of
from rillnode.actors.nextgraph.outer import OuterActor
from rillnode.actors.nextgraph.overlay import OverlayActor
from rillnode.actors.nextgraph.publication import Publish
from rillnode.actors.nextgraph.reader import Plan
from rillnode.actors.nextgraph.repairs import RepairsActor
from rillnode.actors.nextgraph.session import Asked
from rillnode.actors.nextgraph.topic import TopicActor
from rillnode.actors.nextgraph.topic_requests import SendCommit, Sync
from rillnode.actors.nextgraph.users import UsersActor
from rillnode.actors.nextgraph.wallets import WalletsActor
from rillnode.codecs.errors import RillnodeError


def spawn_broker(context: BrokerContext, topic: Callable[..., Worker] = TopicActor) -> None:
    """Make the actors that a broker always has, and the tables of the others.

    Args:
        context: the broker's parts.
        topic: makes the actor of a topic.
    """
    system = context.streams.system
    system.outcomes[Asked] = Asked.fail
    system.outcomes[Appended] = Appended.fail
    for kind in (Publish, Sync, SendCommit, Plan):
        system.outcomes[kind] = _fail_asker
    context.overlays = Table(lambda key: system.spawn(partial(OverlayActor, context, key)))
    context.outers = Table(lambda key: system.spawn(partial(OuterActor, context, key)))
    context.topics = Table(lambda key: system.spawn(partial(topic, context, key)))
    context.blocks = Table(lambda key: system.spawn(partial(BlocksActor, context, key)))
    context.users = system.spawn(partial(UsersActor, context))
    context.repairs = system.spawn(partial(RepairsActor, context))
    context.inboxes = system.spawn(partial(InboxActor, context, Readers()))
    context.wallets = system.spawn(partial(WalletsActor, context, set[bytes]()))
    context.streams.router.register(ADDRESS, system.spawn(partial(DeskActor, context)))


def _fail_asker(message: Publish | Sync | SendCommit | Plan, error: RillnodeError) -> None:
    message.asked.fail(error)


def stream_removed(context: BrokerContext, change: StreamRemoved) -> None:
    """Tell a topic that its stream is no more."""
    key = topic_of(change.record.name)
    cell = None if key is None else context.topics.find(key)
    if cell is not None:
        context.streams.system.post(cell, change)
