"""Publish readings as a Streamr client, or follow them; each side has an Ethereum key of its own.

    python examples/streamr_client.py follow ws://127.0.0.1:8890 bob.key sandbox/readings
    python examples/streamr_client.py publish ws://127.0.0.1:8890 alice.key sandbox/readings \
        --to 0x<address that `follow` has printed> --encrypt

The key files are made where there are none.
"""

import argparse
import asyncio
import os
import secrets
from pathlib import Path

from rillnode import streamr
from rillnode.codecs.errors import RequestError

WAIT_SECONDS = 1.0


def read_key(path: Path) -> streamr.EthereumKey:
    """Read an Ethereum key, or make one that only its owner can read."""
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
    return streamr.EthereumKey.from_hex(path.read_text())


async def publish(client: streamr.Client, args: argparse.Namespace) -> None:
    """Create the stream where there is none, let the reader in, and publish `--count` readings."""
    await client.get_or_create_stream(args.stream, partitions=1)
    if args.to:
        await client.grant(args.stream, "get", "subscribe", user=args.to)
    if args.encrypt:
        await client.encrypt(args.stream)
    for number in range(args.count):
        await client.publish(args.stream, {"device": number % 10, "value": number / 2})
    # Returns once everything is durable; raises if something was refused.
    await client.flush()
    print(f"{args.count} readings are stored", flush=True)
    if args.encrypt:
        # Readers ask this process for the key, now and later.
        await asyncio.sleep(args.stay_seconds)


async def follow(client: streamr.Client, args: argparse.Namespace) -> None:
    """Print readings, from the first that is stored on, until there were `--count`."""
    while True:
        try:
            subscription = await client.subscribe(args.stream, resend=streamr.From(0))
            break
        except RequestError as error:
            # The publisher has not created the stream yet, or not let this address in.
            print(f"waiting: {error}", flush=True)
            await asyncio.sleep(WAIT_SECONDS)
    async with subscription as messages:
        left = args.count
        async for message in messages:
            sealed = "encrypted" if message.is_encrypted else "in clear"
            print(f"{message.publisher} ({sealed}): {message.text}", flush=True)
            left -= 1
            if not left:
                break


async def main(args: argparse.Namespace) -> None:
    """Connect, and do what was asked for."""
    key = read_key(args.key)
    print(f"this is {key.address}", flush=True)
    async with await streamr.connect(
        args.url, private_key=key, key_file=args.key.with_suffix(".groups")
    ) as client:
        await args.action(client, args)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Publish or follow readings by Streamr.")
    actions = parser.add_subparsers(required=True)
    for action in (publish, follow):
        sub = actions.add_parser(action.__name__)
        sub.set_defaults(action=action)
        sub.add_argument("url", help="of the `streamr` listener: ws://host:port")
        sub.add_argument("key", type=Path, help="file of your Ethereum key, made if missing")
        sub.add_argument("stream", help="id of the stream")
        sub.add_argument("--count", type=int, default=10, help="how many (default: 10)")
        if action is publish:
            sub.add_argument("--to", help="address that may read the stream")
            sub.add_argument("--encrypt", action="store_true", help="for subscribers only")
            sub.add_argument("--stay-seconds", type=float, default=60.0, help="to give keys")
    asyncio.run(main(parser.parse_args()))
