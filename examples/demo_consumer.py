"""The demo's consumer, a process of its own so that it can be killed.

For each entry it appends `partition index` to a log before it asks for the next one. Its position
is saved by the client while it works; after a kill the next process goes on from there.
"""

import argparse
import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import rillnode
from rillnode.codecs.entries import Entry

SAVE_SECONDS = 0.25


def position(text: str) -> tuple[int, int]:
    """An argument `partition:index`."""
    partition, _, index = text.partition(":")
    return int(partition), int(index)


async def consume(args: argparse.Namespace) -> None:
    """Process entries until SIGTERM."""
    node = json.loads(args.ports_file.read_text())
    log = os.open(args.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    loop = asyncio.get_running_loop()
    async with await rillnode.connect(
        f"noise://{node['noise']}", key_file=args.key, node_identity=node["identity"]
    ) as client:
        stream = await client.stream(args.stream)
        next_at = loop.time()
        async with stream.consumer("demo", save_seconds=SAVE_SECONDS) as entries:
            async for entry in entries:
                # The work that an application would do; a steady rate leaves time for the kill.
                next_at = max(next_at + 1 / args.rate, loop.time() - 1)
                if next_at > loop.time():
                    await asyncio.sleep(next_at - loop.time())
                note(log, entry, args.forget)


def note(log: int, entry: Entry, forget: tuple[int, int] | None) -> None:
    """Write down that an entry was processed; unbuffered, so that a kill loses none of it."""
    if (entry.partition, entry.index) != forget:
        os.write(log, b"%d %d\n" % (entry.partition, entry.index))


async def main(args: argparse.Namespace) -> None:
    """Consume; SIGTERM ends it with its position saved."""
    work = asyncio.ensure_future(consume(args))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    with suppress(asyncio.CancelledError):
        await work


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The consumer of `make demo`.")
    parser.add_argument("ports_file", type=Path, help="what `rillnode run --ports-file` wrote")
    parser.add_argument("key", type=Path, help="key file")
    parser.add_argument("stream", help="name of the stream")
    parser.add_argument("log", type=Path, help="file for what was processed")
    parser.add_argument("--rate", type=float, default=500.0, help="entries per second")
    parser.add_argument("--forget", type=position, help="process this entry without noting it")
    asyncio.run(main(parser.parse_args()))
