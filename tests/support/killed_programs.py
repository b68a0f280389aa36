"""Programs that tests kill: a producer, a worker of a queue, a member of a group.

What happens to them they note in a journal that all share, line by line, each line as a whole and
with the process that it is of.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from random import Random
from typing import Final

from nodes import CLIENT
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.node.client import Client, connect

STREAM: Final = "jobs"
NAME: Final = "w"
"""Of the queue, and of the group."""

PARTITIONS: Final = 4
KEYS: Final = 5
ATTEMPTS: Final = 12
REJECTED: Final = 29
AGAIN: Final = 17
"""Of so many jobs one is rejected, and one is given back at its first attempts."""

UNDER_WAY: Final = 8
PUSH_SECONDS: Final = 0.02


class Journal:
    """What programs note."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def note(self, word: str, *more: object) -> None:
        """Write a line behind those of others."""
        os.write(self._file, f"{word} {os.getpid()} {' '.join(map(str, more))}\n".encode())


async def push(client: Client, journal: Journal, entries: int) -> None:
    """Push so many entries under a name; whoever begins anew goes on where the last one stopped."""
    stream = await client.stream(STREAM, partitions=PARTITIONS)
    producers = [await stream.producer("m7", partition=number) for number in range(PARTITIONS)]
    lasts = [one.last_sequence for one in producers]
    waiting: list[tuple[int, asyncio.Future[int]]] = []
    for number in range(entries):
        at, sequence = number % PARTITIONS, number // PARTITIONS
        last = lasts[at]
        if last is not None and sequence <= last:
            continue
        key = f"{sequence % KEYS}"
        waiting.append(
            (number, producers[at].push_nowait(b"%d" % number, sequence=sequence, key=key))
        )
        if len(waiting) >= UNDER_WAY:
            await confirm(journal, waiting)
        await asyncio.sleep(PUSH_SECONDS)
    while waiting:
        await confirm(journal, waiting)
    journal.note("pushed", entries)


async def confirm(journal: Journal, waiting: list[tuple[int, asyncio.Future[int]]]) -> None:
    number, future = waiting.pop(0)
    journal.note("stored", number, await future)


async def work(client: Client, journal: Journal, chance: Random, *, by_key: bool) -> None:
    """Be a worker: some jobs are done, some are given back, and some rejected."""
    stream = await client.stream(STREAM, partitions=PARTITIONS)
    async with stream.work(
        NAME, attempts=ATTEMPTS, visibility_seconds=5.0, in_flight=4, by_key=by_key
    ) as queue:
        async for job in queue:
            place = f"{job.partition}/{job.index}"
            number = int(job.data)
            journal.note("got", place, number, job.attempt)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.uniform(0.0, 0.02))
            try:
                if number % REJECTED == 0:
                    await job.reject("no page")
                    journal.note("rejected", place)
                elif number % AGAIN == 0 and job.attempt < 3:
                    await job.retry(0.01, reason="no paper")
                    journal.note("again", place)
                else:
                    await job.done()
                    journal.note("done", place)
            except RillnodeError as error:
                journal.note("not", place, error.code)


async def consume(client: Client, journal: Journal, chance: Random) -> None:
    """Be a member: acknowledge each entry, and save now and then."""
    stream = await client.stream(STREAM, partitions=PARTITIONS)
    behind: dict[int, int] = {}

    def lost(partitions: Sequence[int]) -> None:
        for partition in partitions:
            behind.pop(partition, None)

    async with stream.consumer(
        NAME, group=True, ack="explicit", save_seconds=0.5, on_revoked=lost
    ) as consumer:
        async for entry in consumer:
            journal.note("got", f"{entry.partition}/{entry.index}", int(entry.data))
            if chance.random() < 0.3:
                await asyncio.sleep(chance.uniform(0.0, 0.02))
            if entry.partition not in consumer.partitions:
                continue
            consumer.ack(entry)
            behind[entry.partition] = entry.index + 1
            if chance.random() < 0.2:
                before = dict(behind)
                try:
                    await consumer.save()
                except RillnodeError as error:
                    journal.note("not", error.code)
                    continue
                for partition, index in before.items():
                    if behind.get(partition) == index:
                        journal.note("saved", partition, index)


async def main(what: str, url: str, node_identity: str, path: str, number: str) -> None:
    while True:
        try:
            client = await connect(url, identity=CLIENT, node_identity=node_identity)
        except TransportError:  # the node is started again at the moment
            await asyncio.sleep(0.1)
            continue
        break
    journal, chance = Journal(path), Random(number)
    async with client:
        if what == "push":
            await push(client, journal, int(number))
        elif what == "consume":
            await consume(client, journal, chance)
        else:
            await work(client, journal, chance, by_key=what == "work_by_key")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
