"""An actor of an application, behind an address of its node, for Ockam nodes and clients.

    python examples/greeter.py DIRECTORY

It prints where it listens, and how an Ockam node reaches it. Ctrl-C ends it.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import rillnode
from rillnode.node.ockam.config import OckamListener


class Greeter(rillnode.Actor):
    """Greets whoever it is sent the name of, and counts."""

    def __init__(self) -> None:
        self.greeted = 0

    async def receive(self, message: rillnode.Message, ctx: rillnode.Context) -> bytes:
        """Answer one message; the next waits meanwhile."""
        if not message.payload:
            raise rillnode.ActorReply("greeter.name", "send the name of whom to greet")
        self.greeted += 1
        return b"hello, %s, number %d" % (message.payload, self.greeted)


async def main(directory: Path) -> None:
    """Run a node with the actor until the actor has ended."""
    tables = [OckamListener(listen="127.0.0.1:0")]
    config = rillnode.Config.embedded(directory, name="greeter", tables=tables)
    async with rillnode.Node(config) as node:
        greeter = await node.spawn(Greeter, address="greeter", allow=["anonymous"], essential=True)
        # Elixir: Ockam.Router.route(%{payload: "Ada", return_route: ["app"],
        #     onward_route: [TCPAddress.new("127.0.0.1", PORT), "greeter"]})
        print(f"1#{node.addresses()['ockam']};greeter", flush=True)
        await greeter.wait()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with suppress(KeyboardInterrupt):
        asyncio.run(main(Path(sys.argv[1])))
