"""A worker in a process of its own, as tests start and kill it: notes what it gets and has done."""

import asyncio
import os
import sys

from nodes import CLIENT
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import connect


def note(journal: int, *words: bytes) -> None:
    """Write a line as a whole, behind those of others."""
    os.write(journal, b" ".join(words) + b"\n")


async def work(url: str, node_identity: str, path: str) -> None:
    journal = os.open(path, os.O_WRONLY | os.O_APPEND)
    async with await connect(url, identity=CLIENT, node_identity=node_identity) as client:
        stream = await client.stream("jobs")
        async with stream.work("q", attempts=1_000, in_flight=4) as queue:
            async for job in queue:
                note(journal, b"got", job.data)
                try:
                    await job.done()
                except RillnodeError as error:
                    note(journal, b"not", job.data, error.code.encode())
                else:
                    note(journal, b"done", job.data)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
