"""A node inside an application: no socket, no other process, the same durable log.

    python examples/embed.py DIRECTORY

Run it twice: the second run goes on where the first one stopped.
"""

import asyncio
import sys
from pathlib import Path

import rillnode


async def main(directory: Path) -> None:
    """Push ten readings, then consume everything that this client has not processed yet."""
    # Without listeners only this process reaches the node.
    async with rillnode.Node(rillnode.Config.embedded(directory)) as node:
        stream = await node.stream("readings")
        # Pushed together, synced together; each future gets its index once it is durable.
        futures = [stream.push_nowait(b"reading %d" % number) for number in range(10)]
        indexes = await asyncio.gather(*futures)
        print(f"stored {indexes[0]} to {indexes[-1]}")

        async with stream.consumer("example") as consumer:
            async for entry in consumer:
                print(f"{entry.index}: {entry.data.decode()}")
                if entry.index == indexes[-1]:
                    consumer.stop()  # the loop ends as it asks for the next one


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(Path(sys.argv[1])))
