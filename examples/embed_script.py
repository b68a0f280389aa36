"""A plain script with a node inside: copies a file's lines into a durable stream, each once.

    python examples/embed_script.py DIRECTORY FILE

Kill it, run it again, append to the file and run it once more: every line is stored once, in order.
"""

import asyncio
import sys
from itertools import islice
from pathlib import Path

from rillnode import Config, Node

_BATCH = 1_000


async def copy(directory: Path, file: Path) -> tuple[int, int]:
    """Store the lines that are not stored yet; return how many were, and how many are now."""
    async with Node(Config.embedded(directory)) as node:
        stream = await node.stream("lines")
        (partition,) = (await node.client.describe("lines")).partitions
        # Indexes are dense: the next one is the number of lines stored before.
        first = following = partition.next_index
        with file.open("rb") as lines:
            rest = islice((line.rstrip(b"\n") for line in lines), first, None)
            while batch := list(islice(rest, _BATCH)):
                following = await stream.push_many(batch)
        return first, following


def main() -> None:
    """Copy and tell."""
    first, following = asyncio.run(copy(Path(sys.argv[1]), Path(sys.argv[2])))
    print(f"{first} lines were stored before, {following - first} were added")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
