"""The last reading: every log whole, when all has happened."""

import asyncio
from collections.abc import Sequence
from typing import Final

from rillnode.actors.log import DEAD_SUFFIX
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import History, Log, Push, log_of
from rillnode.node.simulated.nodes import KEPT_PREFIX, SHARED_STREAM
from rillnode.node.simulated.programs import payload_of
from rillnode.node.simulation.clients.own_stream import check_limited
from rillnode.node.simulation.world import Machine, World

READ_ENTRIES: Final = 1_000
LAST_BYTES: Final = 64

HEARD_SECONDS: Final = 3.0
"""Within which all nodes have what was confirmed at one of them."""

Contents = dict[Log, list[tuple[int, bytes]]]


class Reading:
    """Reads the logs of all nodes, as a new client does.

    Args:
        shared: whether the nodes share one stream; else each log gets one entry more, which
            nobody has used for a while.
        streams: those of nodes that keep all streams in one log.
    """

    def __init__(
        self, world: World, history: History, *, shared: bool, streams: Sequence[str] = ()
    ) -> None:
        self._streams = streams
        self._world = world
        self._history = history
        self._shared = shared

    async def read(self, seconds: float) -> Contents:
        """Read them, within so many seconds."""
        reader = self._world.add_machine("checker", 0)
        found: Contents = {}

        async def read(node: str) -> None:
            try:
                found.update(await self._read_node(reader, node))
            except RillnodeError as error:
                self._history.broken("no-progress", f"the logs of {node} are not read: {error}")

        async def read_all() -> None:
            if self._streams:
                found.update(await self._read_shared(reader))
            else:
                await asyncio.gather(*map(read, self._world.nodes))

        task = reader.loop.create_task(read_all())
        try:
            async with asyncio.timeout(seconds):
                await self._world.watched(task)
        except TimeoutError:
            self._history.broken("no-progress", "the logs cannot be read at the end")
        return found

    async def _read_node(self, reader: Machine, node: str) -> Contents:
        """Read the logs of one node.

        Raises:
            RillnodeError: it takes no link, or refuses what everybody may do.
        """
        found: Contents = {}
        client = await self._world.client(reader, node)
        check_limited(self._history, node, await client.streams(KEPT_PREFIX))
        for info in await client.streams(SHARED_STREAM if self._shared else log_of(node)):
            if info.name.endswith(DEAD_SUFFIX):
                continue  # workers look at these
            stream = await client.stream(info.name)
            for partition in range(stream.partitions):
                if not self._shared:
                    await self._push_last(stream, log_of(node), partition)
                found[log_of(node), partition] = await _whole(stream, partition)
        await client.close()
        return found

    async def _read_shared(self, reader: Machine) -> Contents:
        """Read the logs that all nodes keep, at each node: they are the same.

        Raises:
            RillnodeError: as of `_read_node`.
        """
        world, history, found = self._world, self._history, Contents()
        clients = {node: await world.client(reader, node) for node in world.nodes}
        for node, client in clients.items():
            check_limited(history, node, await client.streams(KEPT_PREFIX))
            for name in self._streams:
                stream = await client.stream(name)
                for partition in range(stream.partitions):
                    await self._push_last(stream, name, partition, f" at {node}")
        await asyncio.sleep(HEARD_SECONDS)
        for node, client in clients.items():
            for name in self._streams:
                stream = await client.stream(name)
                for partition in range(stream.partitions):
                    log = name, partition
                    here = await _whole(stream, partition)
                    there = found.setdefault(log, here)
                    if here != there:
                        text = f"{name}/{partition} has {len(here)} entries at {node}"
                        history.broken("view-differs", f"{text}, and {len(there)} elsewhere")
            await client.close()
        return found

    async def _push_last(self, stream: Stream, name: str, partition: int, where: str = "") -> None:
        """Push one entry more, to a log that nobody has used for a while."""
        history, log = self._history, (name, partition)
        payload = payload_of(f"last of {name}{where}", partition, LAST_BYTES)
        push = Push("the-end", partition, log, history.now(), attempts=1)
        history.pushed({payload: push})
        history.confirmed([payload], [await stream.push(payload, partition=partition)])


async def _whole(stream: Stream, partition: int) -> list[tuple[int, bytes]]:
    """All entries of a log."""
    log: list[tuple[int, bytes]] = []
    while entries := await stream.pull(len(log), READ_ENTRIES, partition=partition):
        log += [(entry.index, entry.data) for entry in entries]
    return log
