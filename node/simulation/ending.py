"""The end of a run: streams are trimmed, then removed, and nothing of that stays on any disk.

What nobody can read any more shows to no client; it shows to whose disk fills up with it. It is
looked at in quiet only, for a crash may leave something that the next trim takes away.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from rillnode.actors.log import StreamRecord, log_id
from rillnode.actors.log.records import OF_LOGS
from rillnode.actors.log.rocks.layout import (
    BLOCK_KEY,
    BLOCK_KEYS_PREFIX,
    INDEX,
    LOG_KEY,
    NUMBER,
    SAVED_INDEX_PREFIX,
    STREAM_ID_PREFIX,
    STREAM_PREFIX,
    record_key,
)
from rillnode.codecs.entries import Block
from rillnode.node.client.stream import StreamInfo
from rillnode.node.simulated.history import History
from rillnode.node.simulation.disk import Disk
from rillnode.node.simulation.leftovers import holding
from rillnode.node.simulation.world import NodeMachine, World

ENDING_PART: Final = 0.1
"""How many runs end so: it takes each node some writes for each of its streams."""

OF_STREAMS: Final = (
    STREAM_PREFIX,
    STREAM_ID_PREFIX,
    SAVED_INDEX_PREFIX,
    *map(record_key, OF_LOGS),
)
"""What the keys of small values begin with that are there for a stream."""


async def end_streams(world: World, history: History) -> None:
    """Trim all streams of all nodes, then remove them, and look at the disks after both."""
    random = world.network.random("the end of streams")
    if random.random() >= ENDING_PART:
        return
    for machine in world.nodes.values():
        if machine.ready and machine.disk.rows("records"):
            machine.disk.show_on()  # to who looks at the run when it is over
            await world.on(machine, _end_on(machine, random, history))


async def _end_on(machine: NodeMachine, random: Random, history: History) -> None:
    node, disk = machine.node, machine.disk
    client, observed = node.client, node.observed
    infos = await client.streams()
    for log in _logs(disk, infos):
        if followers := observed.subscribers.of(log):
            text = f"{followers} followers of log {log:#x} in its account, of which there are none"
            history.broken("left-over", f"{machine.name} has {text}")
    for info in infos:
        for part in info.partitions:
            before = random.randint(part.first_index, max(part.first_index, part.next_index))
            await client.trim(info.name, partition=part.partition, before=before)
    for text in _trimmed(disk, await client.streams()):
        history.broken("left-over", f"the disk of {machine.name} holds {text}")
    for info in infos:
        await client.remove(info.name)
    for text in _removed(disk):
        history.broken("left-over", f"the disk of {machine.name} holds {text}")
    for actor in holding(observed.system, StreamRecord):
        text = f"{actor} holds the record of a stream that was removed"
        history.broken("left-over", f"{machine.name}: {text}")


def _logs(disk: Disk, infos: Sequence[StreamInfo]) -> dict[int, int]:
    """Where each log of streams begins."""
    ids = {
        value.decode(): NUMBER.unpack(key[len(STREAM_ID_PREFIX) :])[0]
        for key, value in disk.rows("records")
        if key.startswith(STREAM_ID_PREFIX)
    }
    return {
        log_id(ids[info.name], part.partition): part.first_index
        for info in infos
        for part in info.partitions
    }


def _trimmed(disk: Disk, infos: Sequence[StreamInfo]) -> Iterator[str]:
    """What is there of entries that were trimmed; a block stays for as long as one of its does."""
    kept = _logs(disk, infos)
    begins = dict[int, int]()
    for key, value in disk.rows("blocks"):
        if len(key) != BLOCK_KEY.size:
            continue
        log, first_index = BLOCK_KEY.unpack(key)
        if Block(first_index, value).next_index <= kept.get(log, 0):
            yield f"a block of log {log:#x} at {first_index}, which begins at {kept[log]}"
        else:
            begins.setdefault(log, first_index)
    for key, _ in disk.rows("keys"):
        (log,), (index,) = LOG_KEY.unpack_from(key), INDEX.unpack(key[-INDEX.size :])
        if index < begins.get(log, kept.get(log, 0)):
            what = (
                "a list of keys" if key[LOG_KEY.size :].startswith(BLOCK_KEYS_PREFIX) else "a key"
            )
            yield f"{what} of log {log:#x} for {index}, which is trimmed"


def _removed(disk: Disk) -> Iterator[str]:
    """What is there of streams when there are none."""
    for table in ("blocks", "keys"):
        if rows := disk.rows(table):
            yield f"{len(rows)} {table} of streams that were removed"
    for key, _ in disk.rows("records"):
        if key.startswith(OF_STREAMS):
            yield f"{key!r} of a stream that was removed"
