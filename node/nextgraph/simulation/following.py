"""Compares what a simulated NextGraph user has of each topic with what it should have.

An answer comes over the same connection as what is forwarded, and after it: once a topic is
followed, to ask brings nothing that has not been forwarded.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from rillnode.codecs.errors import RequestError, TransportError
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.bloom import KnownDigests, make_filter
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import ForwardedPeer
from rillnode.node.nextgraph.client.client import Client
from rillnode.node.nextgraph.client.connection import refusal
from rillnode.node.nextgraph.client.subscription import Subscription
from rillnode.node.nextgraph.simulation.document import Document, Followed, Publication

Ask = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]

TURN_SECONDS: Final = 0.01
"""For what has arrived to be taken."""

NO_TOPIC: Final = refusal(ResultCode.TOPIC_NOT_FOUND).code


@dataclass(slots=True, eq=False)
class Live:
    """One subscription.

    Attributes:
        subscription: of the client.
        before: what was had of the topic when it began.
        seen: what it has brought.
        left: whether the broker was told that nothing more is wanted, and has answered.
        task: takes what comes.
    """

    subscription: Subscription
    before: dict[bytes, None]
    seen: dict[bytes, None] = field(default_factory=dict[bytes, None])
    left: bool = False
    task: "asyncio.Task[None] | None" = None


class Following:
    """One process' copies of a document's topics, over one connection after the other."""

    def __init__(self, document: Document, who: str) -> None:
        self._document = document
        self._who = who
        self._topics: defaultdict[bytes, Followed] = defaultdict(Followed)
        self._live: dict[bytes, Live] = {}
        self._peer = b""
        self._refused: dict[bytes, None] = {}

    def of(self, topic: bytes) -> Followed:
        """What is had of a topic."""
        return self._topics[topic]

    def has(self, publication: Publication) -> None:
        """Its own publication is confirmed."""
        self._topics[publication.topic.public_key].add(publication)

    def refused(self, publication: Publication) -> None:
        """Its own publication was refused, but may be durable all the same."""
        self._refused[publication.id] = None

    def _broken(self, rule: str, text: str) -> None:
        self._document.broken(rule, self._who, text)

    # Connections -----------------------------------------------------------------------------

    async def begin(self, client: Client, ask: Ask, own: Identity, random: Random) -> None:
        """Follow all topics over a new connection, and ask for what was missed.

        Raises:
            RillnodeError: the connection is over; or a refusal.
        """
        self._peer = client.peer.public_key
        self._refused.clear()
        for topic in self._document.topics:
            publisher = topic if topic in (own, self._document.shared) else None
            await self._follow(client, ask, topic, publisher, random)

    def end(self) -> None:
        """The connection is over."""
        lives, self._live = self._live, {}
        for live in lives.values():
            if live.task is not None:
                live.task.cancel()
            if live.subscription.refused:
                self._broken("unknown-entry", "was forwarded an event whose signature is wrong")

    async def _follow(
        self, client: Client, ask: Ask, topic: Identity, publisher: Identity | None, random: Random
    ) -> None:
        document, name = self._document, topic.public_key
        confirmed = document.confirmed(name)
        subscribing = client.subscribe(document.inner, document.repo, name, publisher=publisher)
        subscription: Subscription = await ask(subscribing)
        told = subscription.topic
        if told.commits_nbr < len(confirmed):
            text = f"is told of {told.commits_nbr} commits of {document.name_of(name)}"
            self._broken("pull-short", f"{text}, where {len(confirmed)} are durable")
        live = Live(subscription, dict.fromkeys(self._topics[name].known))
        until = told.known_heads if random.random() < 0.5 else []
        await self._ask(client, ask, topic, until, random, confirmed if until else None)
        self._live[name] = live
        live.task = asyncio.get_running_loop().create_task(self._take_all(name, live))

    async def leave(
        self, client: Client, ask: Ask, topic: Identity, seconds: float, random: Random
    ) -> None:
        """Leave a topic for a while; raises as `begin`."""
        document, name = self._document, topic.public_key
        live = self._live[name]
        await ask(client.unsubscribe(document.inner, document.repo, name))
        await asyncio.sleep(TURN_SECONDS)
        live.left = True
        await asyncio.sleep(seconds)
        live.subscription.close()
        assert live.task is not None
        live.task.cancel()
        await self._follow(client, ask, topic, None, random)

    # What comes by itself --------------------------------------------------------------------

    async def _take_all(self, topic: bytes, live: Live) -> None:
        try:
            async for event in live.subscription:
                self._take(topic, live, event)
        except TransportError as error:
            self._document.history.note(self._who, "not followed", error.code)

    def _take(self, topic: bytes, live: Live, event: Event) -> None:
        document, followed = self._document, self._topics[topic]
        source = document.saw(self._who, topic, event)
        if source is None:
            return
        what = f"{source.id.hex()[:8]} of {document.name_of(topic)}"
        document.history.note(self._who, "event", source.id.hex()[:8])
        if live.left:
            self._broken("left-over", f"is forwarded {what}, which it has left")
            return
        if source.id in live.seen or source.id in live.before:
            self._broken("subscription-duplicate", f"is forwarded {what} again")
        own = event.content.publisher == ForwardedPeer(self._peer)
        if own and source.id not in self._refused:
            self._broken("subscription-duplicate", f"is forwarded {what}, which it has published")
        # What it has itself published over this connection it has: where nodes share a log, others
        # may hear of it, and go on from it, before it is confirmed here.
        published = document.publications
        if any(self._peer not in published[one].publishers for one in followed.lacking(source)):
            self._broken("subscription-gap", f"is forwarded {what} without what is before it")
        live.seen[source.id] = None
        followed.add(source)

    # What is asked for -----------------------------------------------------------------------

    async def look(self, client: Client, ask: Ask, topic: Identity, random: Random) -> None:
        """Ask for all that is new on a topic that is followed; raises as `begin`."""
        await self._ask(client, ask, topic, [], random, None)

    async def _ask(
        self,
        client: Client,
        ask: Ask,
        topic: Identity,
        until: Sequence[bytes],
        random: Random,
        expected: Sequence[Publication] | None,
    ) -> None:
        """Ask for a topic's events, up to some commits or to all, but not what is had already.

        What is had is told by the last commits, by a filter, or not at all.
        """
        document, name = self._document, topic.public_key
        followed, live = self._topics[name], self._live.get(name)
        expected = document.confirmed(name) if expected is None else expected
        how = random.choice(("heads", "filter", "nothing"))
        known = followed.heads if how == "heads" else []
        local = list(followed.known) if how == "filter" else []
        had = {} if how == "nothing" else dict.fromkeys(followed.known)
        filtered = KnownDigests(make_filter(local, len(local))) if local else ()
        asking = client.sync(document.inner, name, known=known, until=until, local=local)
        events: list[Event] = await ask(_all(asking, expected=bool(expected)))
        await asyncio.sleep(TURN_SECONDS if live is not None else 0.0)
        document.history.note(self._who, f"sync by {how}", str(len(events)))
        found: dict[bytes, Publication] = {}
        for event in events:
            source = document.saw(self._who, name, event)
            if source is None:
                continue
            what = f"{source.id.hex()[:8]} of {document.name_of(name)}"
            if source.id in found or source.id in had:
                self._broken("event-order", f"gets {what} again")
            ahead = [one for one in source.parents if one not in found and one not in had]
            if ahead and not any(one in filtered for one in ahead):
                self._broken("event-order", f"gets {what} before what it comes after")
            found[source.id] = source
        self._check_found(name, found, live)
        lacking = [one for one in expected if one.id not in found and one.id not in had]
        if any(one.id in filtered for one in (*lacking, *found.values())):
            return  # the filter takes one for another: what it leaves out comes another time
        for one in lacking:
            text = f"does not get {one.id.hex()[:8]} of {document.name_of(name)}, which is durable"
            self._broken("pull-short", text)
        for source in found.values():
            if source.id not in followed.known:
                followed.add(source)

    def _check_found(
        self, topic: bytes, found: dict[bytes, Publication], live: Live | None
    ) -> None:
        """What there is of a topic that is followed must have come by itself, but for its own."""
        if live is None or live.left:
            return
        for source in found.values():
            own = self._peer in source.publishers
            if source.id not in self._topics[topic].known and not own:
                name = self._document.name_of(topic)
                self._broken(
                    "subscription-gap", f"was not forwarded {source.id.hex()[:8]} of {name}"
                )


async def _all(asking: Any, *, expected: bool) -> list[Event]:
    """All events of an answer; none where there is no topic, and need not be one."""
    try:
        return [event async for event in asking]
    except RequestError as error:
        if error.code != NO_TOPIC or expected:
            raise
        return []
