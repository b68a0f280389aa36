"""A printer behind NAT: it has an address at a node that it has dialled, and answers from there.

rillnode run -c edge/node.toml --ports-file edge/ports.json
python examples/printer.py edge/ports.json edge/data/admin.key
rillnode route ask printer "Dear Sir or Madam" -c edge/node.toml

Several may run at once: each page goes to one of them. Ctrl-C ends one after the pages that it has.
"""

import argparse
import asyncio
import json
from pathlib import Path

import rillnode

PAGE_CHARACTERS_MAX = 2_000


async def print_page(message: rillnode.Message) -> bytes:
    """Print one page, which takes its time."""
    text = message.payload.decode(errors="replace")
    if len(text) > PAGE_CHARACTERS_MAX:
        raise rillnode.ActorReply("printer.page", f"a page has {PAGE_CHARACTERS_MAX} characters")
    await asyncio.sleep(0.2)
    print(f"for {message.principal[:14]}: {text}", flush=True)
    return b"printed %d characters" % len(text)


async def main(args: argparse.Namespace) -> None:
    """Serve until the node does not let it go on."""
    node = json.loads(args.ports_file.read_text())
    async with (
        await rillnode.connect(
            f"noise://{node['noise']}", key_file=args.key, node_identity=node["identity"]
        ) as client,
        await client.serve("printer", print_page, group=True, calls_max=4) as service,
    ):
        print("ready", flush=True)
        await service.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print what is sent to the address `printer`.")
    parser.add_argument("ports_file", type=Path, help="what `rillnode run --ports-file` wrote")
    parser.add_argument("key", type=Path, help="your key file")
    try:
        asyncio.run(main(parser.parse_args()))
    except KeyboardInterrupt:
        print("no more pages")
