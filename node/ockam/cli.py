"""Secure channels for the verbs that send messages: `rillnode route ask --channel ROUTE ...`."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

from rillnode.codecs.channel_key import parse_channel_key
from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.message import Opened, route_argument
from rillnode.node.cli.parsing import Parser, UsageError
from rillnode.node.client import Client
from rillnode.node.keys.files import read_channel_key
from rillnode.node.ockam.client.channel import ChannelLevel, SecureChannel


def add_channel(parser: Parser) -> Callable[[argparse.Namespace], Opened | None]:
    """Add the options to a verb."""
    channel = parser.add_argument_group("through a secure channel")
    channel.add_argument(
        "--channel", type=route_argument, metavar="ROUTE",
        help="open an Ockam secure channel to the listener there, and send through it",
    )  # fmt: skip
    channel.add_argument(
        "--channel-level", choices=get_args(ChannelLevel), default="2022", metavar="LEVEL",
        help=f"what the listener speaks: {', '.join(get_args(ChannelLevel))} (default: 2022)",
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


async def _open(args: argparse.Namespace, client: Client, seconds: float) -> SecureChannel:
    file: Path | None = args.channel_key
    return await SecureChannel.open(
        client,
        args.channel,
        level=args.channel_level,
        key=None if file is None else read_channel_key(file),
        remote_key=args.channel_remote_key,
        timeout_seconds=seconds,
    )


def _channel_key(text: str) -> str:
    try:
        return parse_channel_key(text).hex()
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.text) from None
