"""Options for verbs of the kernel: `route ask --channel ROUTE`, `route serve --hub ROUTE`."""

import argparse
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.message import Opened, route_argument
from rillnode.node.cli.parsing import Parser, UsageError
from rillnode.node.cli.serve import Begin

if TYPE_CHECKING:
    from rillnode.node.client import Client, Handler
    from rillnode.node.ockam.client.channel import SecureChannel


LEVELS: Final = ("elixir-2021", "rust-2021", "2022")
"""Those of `ChannelLevel`, which a help text must not import."""


def add_channel(parser: Parser) -> Callable[[argparse.Namespace], Opened | None]:
    """Add the options to a verb."""
    channel = parser.add_argument_group("through a secure channel")
    channel.add_argument(
        "--channel", type=route_argument, metavar="ROUTE",
        help="open an Ockam secure channel to the listener there, and send through it",
    )  # fmt: skip
    channel.add_argument(
        "--channel-level", choices=LEVELS, default="2022", metavar="LEVEL",
        help=f"what the listener speaks: {', '.join(LEVELS)} (default: 2022)",
    )  # fmt: skip
    channel.add_argument(
        "--channel-key", type=Path, metavar="FILE",
        help="the static key to show, from `rillnode key new --channel` (default: a new one)",
    )  # fmt: skip
    channel.add_argument(
        "--channel-remote-key", type=_channel_key, metavar="HEX",
        help="the listener's public key; no other listener learns yours",
    )  # fmt: skip
    return _opened


def _opened(args: argparse.Namespace) -> Opened | None:
    if args.channel is None:
        if args.channel_key or args.channel_remote_key:
            raise UsageError(args.command, "--channel-key and --channel-remote-key need --channel")
        return None
    return partial(_open, args)


async def _open(args: argparse.Namespace, client: "Client", seconds: float) -> "SecureChannel":
    from rillnode.node.keys.files import read_channel_key
    from rillnode.node.ockam.client.channel import SecureChannel

    file: Path | None = args.channel_key
    return await SecureChannel.open(
        client,
        args.channel,
        level=args.channel_level,
        key=None if file is None else read_channel_key(file),
        remote_key=args.channel_remote_key,
        timeout_seconds=seconds,
    )


def add_hub(parser: Parser) -> Callable[[argparse.Namespace], Begin | None]:
    """Add the option to `route serve`."""
    parser.add_argument(
        "--hub", type=route_argument, metavar="ROUTE",
        help="have an alias at the Ockam hub there, in place of an address of the node",
    )  # fmt: skip
    return _at_hub


def _at_hub(args: argparse.Namespace) -> Begin | None:
    if args.hub is None:
        return None
    if args.group:
        raise UsageError(args.command, "argument --group: a hub's alias leads to one")
    return partial(_serve_at_hub, args)


async def _serve_at_hub(
    args: argparse.Namespace, client: "Client", handler: "Handler", **limits: Any
) -> AbstractAsyncContextManager[Any]:
    from rillnode.node.ockam.client.hub import Hub

    name = None if args.address == "-" else args.address
    return await Hub(client, args.hub).serve(name, handler, **limits)


def _channel_key(text: str) -> str:
    from rillnode.codecs.channel_key import parse_channel_key

    try:
        return parse_channel_key(text).hex()
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.text) from None
