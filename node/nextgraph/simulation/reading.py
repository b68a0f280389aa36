"""The last reading of NextGraph documents: by a user who has nothing, and as topics' logs."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from rillnode.actors.nextgraph.names import topic_stream
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.node.nextgraph.client.client import Client
from rillnode.node.nextgraph.client.connecting import connect
from rillnode.node.nextgraph.simulation.audit import NEXTGRAPH_PORT
from rillnode.node.nextgraph.simulation.document import Document
from rillnode.node.nextgraph.simulation.following import NO_TOPIC
from rillnode.node.nextgraph.simulation.objects import look_at
from rillnode.node.simulated.world import Machine, World

T = TypeVar("T")

READ_ENTRIES: Final = 1_000


async def read_documents(world: World, documents: Sequence[Document], seconds: float) -> None:
    """Read the documents of all nodes, within so many seconds."""
    if not documents:
        return
    reader = world.add_machine("nextgraph-checker", 0)

    async def read_all() -> None:
        for document in documents:
            try:
                await _Reading(world, reader, document).read()
            except RillnodeError as error:
                document.broken("no-progress", reader.name, f"a document is not read: {error}")

    try:
        async with asyncio.timeout(seconds):
            await world.on(reader, read_all())
    except TimeoutError:
        documents[0].broken("no-progress", reader.name, "documents cannot be read at the end")


class _Reading:
    """Of one document."""

    def __init__(self, world: World, reader: Machine, document: Document) -> None:
        self._world = world
        self._reader = reader
        self._document = document

    async def read(self) -> None:
        """Read it over both kinds of links; raises as they do."""
        document, world = self._document, self._world
        node, entropy = world.nodes[document.node].node, self._reader.entropy
        client = await connect(
            f"ws://{document.node}:{NEXTGRAPH_PORT}",
            broker=bytes.fromhex(node.facts["nextgraph_peer_id"]),
            user=Identity.from_seed(entropy(SEED_BYTES)),
            client=Identity.from_seed(entropy(SEED_BYTES)),
            entropy=entropy,
        )
        await client.pin(document.repo, document.access)
        native = await world.client(self._reader, document.node)
        for topic in document.topics:
            events = await self._events(client, topic.public_key)
            stream = await native.stream(topic_stream(document.inner.id, topic.public_key))
            log: list[bytes] = []
            while entries := await stream.pull(len(log), READ_ENTRIES):
                log += [bytes(entry.data) for entry in entries]
            self._compare(document.name_of(topic.public_key), log, events)
        for thing in document.things:
            await look_at(document, self._reader.name, thing, client, _at_once)
        await native.close()
        await client.close()

    def _compare(self, name: str, log: list[bytes], events: list[Event]) -> None:
        """The log of a topic holds each event once, in the order in which a sync brings them."""
        encoded = [EVENT.encode(event) for event in events]
        if len(log) > len(dict.fromkeys(log)) or len(log) > len(encoded):
            text = f"the log of {name} has {len(log)} entries of {len(encoded)} events"
            self._document.broken("too-many-copies", self._reader.name, text)
        elif log != encoded:
            text = f"the log of {name} holds other events than a sync brings"
            self._document.broken("wrong-log", self._reader.name, text)

    async def _events(self, client: Client, topic: bytes) -> list[Event]:
        """Get all events of a topic: they are those that were published, in order."""
        document, who, events = self._document, self._reader.name, list[Event]()
        try:
            events += [event async for event in client.sync(document.inner, topic)]
        except RequestError as error:
            if error.code != NO_TOPIC:
                raise
        found: dict[bytes, None] = {}
        for event in events:
            source = document.saw(who, topic, event)
            if source is None:
                continue
            what = f"{source.id.hex()[:8]} of {document.name_of(topic)}"
            if source.id in found:
                document.broken("too-many-copies", who, f"gets {what} again")
            if any(one not in found for one in source.parents):
                document.broken("event-order", who, f"gets {what} before what it comes after")
            found[source.id] = None
        for one in document.confirmed(topic):
            if one.id not in found:
                text = f"{one.id.hex()[:8]} of {document.name_of(topic)} was confirmed, and is gone"
                document.broken("confirm-lost", who, text)
        for commit in document.seen(topic):
            if commit not in found:
                text = f"{commit.hex()[:8]} of {document.name_of(topic)} was seen, and is gone"
                document.broken("seen-lost", who, text)
        document.history.note(who, "read", f"{document.name_of(topic)} {len(found)}")
        return events


async def _at_once(asking: Coroutine[Any, Any, T]) -> T:
    return await asking
