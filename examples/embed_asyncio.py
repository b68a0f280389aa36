"""An asyncio application with a node inside: a TCP server that confirms only what is on disk.

    python examples/embed_asyncio.py DIRECTORY

Each line that a client sends is stored, and answered with its index once it would survive a power
cut. A worker in the same process handles every line once, also over restarts.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path

from rillnode import Config, Node, Stream

LINES = ("kettle on", "kettle boils", "kettle off")


async def serve(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Store what one client sends, line by line."""
    async for line in reader:
        writer.write(b"stored %d\n" % await stream.push(line.rstrip()))
    writer.close()


async def work(stream: Stream, handled: asyncio.Semaphore) -> None:
    """Handle every line once; the position is saved as the loop goes on."""
    async with stream.consumer("worker") as entries:
        async for entry in entries:
            print(f"worker: {entry.index} {entry.data.decode()}")
            handled.release()


async def main(directory: Path) -> None:
    """Run server and worker, and a client that sends three lines."""
    # A node that cannot go on ends the program with NodeFailed, so that it is started again.
    config = Config.embedded(directory, on_fatal="exit")
    async with Node(config) as node:
        stream, handled = await node.stream("events"), asyncio.Semaphore(0)
        worker = asyncio.create_task(work(stream, handled))
        server = await asyncio.start_server(partial(serve, stream), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.writelines(f"{line}\n".encode() for line in LINES)
            writer.write_eof()
            async for answer in reader:
                print(f"client: {answer.decode().rstrip()}")
            writer.close()
        for _ in LINES:
            await handled.acquire()
        worker.cancel()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(Path(sys.argv[1])))
