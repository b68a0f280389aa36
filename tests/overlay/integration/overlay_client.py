"""A program beside one node, in the node's namespace: publishes, or tells what the node has.

overlay_client.py publish NAME ADDRESS IDENTITY     until a line comes in; prints what it did
overlay_client.py look NAME ADDRESS IDENTITY        prints entries and neighbours
"""

import asyncio
import json
import sys
from itertools import count

from overlay_processes import CLIENT
from rillnode import Client, connect
from rillnode.codecs.errors import RillnodeError

PAUSE_SECONDS = 0.02
AGAIN_SECONDS = 0.2
STREAM = "readings"


async def publish(name: str, address: str, identity: str) -> dict[str, list[str]]:
    """Push entry after entry, each once; one that is not confirmed may or may not be there."""
    loop = asyncio.get_running_loop()
    told = loop.run_in_executor(None, sys.stdin.readline)
    confirmed: list[str] = []
    unsure: list[str] = []
    numbers = count()
    while not told.done():
        try:
            async with await _connect(address, identity, reconnect=False) as client:
                stream = await client.stream(STREAM)
                while not told.done():
                    entry = f"{name} {next(numbers)}"
                    unsure.append(entry)
                    await stream.push(entry.encode())
                    confirmed.append(unsure.pop())
                    await asyncio.sleep(PAUSE_SECONDS)
        except RillnodeError:
            await asyncio.sleep(AGAIN_SECONDS)
    return {"confirmed": confirmed, "unsure": unsure}


async def look(_: str, address: str, identity: str) -> dict[str, list[str]]:
    """What a node has, and to whom it is linked."""
    async with await _connect(address, identity, reconnect=True) as client:
        stream = await client.stream(STREAM)
        entries: list[str] = []
        while page := await stream.pull(len(entries), 10_000):
            entries += [bytes(entry.data).decode() for entry in page]
        overlay = (await client.status())["overlay"]
        return {"entries": entries, "neighbours": overlay["neighbours"].get(f"{STREAM}::0", [])}


async def _connect(address: str, identity: str, *, reconnect: bool) -> Client:
    return await connect(
        f"noise://{address}", identity=CLIENT, node_identity=identity, reconnect=reconnect
    )


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    do = {"publish": publish, "look": look}[what]
    print(json.dumps(asyncio.run(do(rest[0], rest[1], rest[2]))), flush=True)
