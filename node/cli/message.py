"""`rillnode message`: send a message along a route, and show what comes back."""

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_args

from rillnode.codecs.errors import CodecError, ConfigError, RillnodeError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.ockam.channel_key import parse_channel_key
from rillnode.codecs.routing.routes import Route, format_route, parse_route
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.entries import input_chunks
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, UsageError, add_noun, add_verb, seconds
from rillnode.node.cli.terminal import Terminal, printable
from rillnode.node.client import Answer, Client
from rillnode.node.keys.files import read_channel_key
from rillnode.node.ockam.client.channel import ChannelLevel, SecureChannel

_WAIT_SECONDS: Final = 10.0


def add(commands: Commands) -> None:
    """Add the noun and its verb."""
    verbs = add_noun(commands, "message", "messages to workers, on this node and behind it: send")
    parser = add_verb(
        verbs, "send", send,
        summary="send a message along a route, and show what comes back",
        usage="--to ROUTE [options]",
        text="A route is a list of addresses, separated by `;` or `=>`: workers by name, nodes as\n"
        "`peer/NAME` (configured) or `1#HOST:PORT` (Ockam TCP; needs the `admin` grant). The\n"
        "payload is stdin unless an option gives it. What comes back is shown as text, or in\n"
        "hexadecimal where it is none; the return route leads to who sent it.",
        examples=[
            "rillnode message send --to echo --payload hello",
            "rillnode message send --to 'peer/core;echo' --payload-hex 00ff --wait 2",
            "rillnode message send --to '1#hub.example.org:4000;printer' --no-wait < page.txt",
            "rillnode message send --channel 'peer/core;SC_listener' --to echo --payload hello",
        ],
    )  # fmt: skip
    parser.add_argument(
        "--to", type=route_argument, required=True, metavar="ROUTE", help="where to"
    )
    payload = parser.add_mutually_exclusive_group()
    payload.add_argument("--payload", type=_text, metavar="TEXT", help="the payload, as UTF-8")
    payload.add_argument(
        "--payload-hex", type=_hex, dest="payload", metavar="HEX",
        help="the payload, in hexadecimal",
    )  # fmt: skip
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait", type=seconds, default=_WAIT_SECONDS, metavar="SECONDS",
        help=f"how long to wait for an answer (default: {_WAIT_SECONDS:g})",
    )  # fmt: skip
    waiting.add_argument("--no-wait", action="store_true", help="do not wait for an answer")
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
        help="the listener's public key: no other one learns who asks",
    )  # fmt: skip
    add_connection_options(parser)


async def send(args: argparse.Namespace, terminal: Terminal) -> int:
    """Send one message."""
    if args.channel is None and (args.channel_key or args.channel_remote_key):
        raise UsageError(args.command, "--channel-key and --channel-remote-key need --channel")
    payload: bytes | None = args.payload
    if payload is None:
        payload = await _input(terminal)
    async with connected(args, terminal) as client:
        way = client if args.channel is None else await _channel(client, args)
        if args.no_wait:
            await way.send(args.to, payload)
            return Exit.OK
        answer = await way.ask(args.to, payload, timeout_seconds=args.wait)
    _show(answer, terminal)
    return Exit.OK


async def _channel(client: Client, args: argparse.Namespace) -> SecureChannel:
    file: Path | None = args.channel_key
    return await client.secure_channel(
        args.channel,
        level=args.channel_level,
        key=None if file is None else read_channel_key(file),
        remote_key=args.channel_remote_key,
        timeout_seconds=args.wait,
    )


def _show(answer: Answer, terminal: Terminal) -> None:
    record: dict[str, Any] = {
        "return_route": format_route(answer.return_route),
        "payload": answer.payload.hex(),
    }
    with suppress(UnicodeDecodeError):
        record["text"] = answer.payload.decode()
    if not terminal.for_people:
        terminal.document(record)
        return
    terminal.write_text(printable(record.get("text", record["payload"])) + "\n")
    terminal.message(f"from {printable(record['return_route']) or 'the last node of the route'}")


async def _input(terminal: Terminal) -> bytes:
    if terminal.stdin.isatty():
        terminal.message("Type the payload; Ctrl-D ends it.")
    payload = bytearray()
    async for chunk in input_chunks(terminal.stdin):
        payload += chunk
        if len(payload) > FRAME_BYTES_MAX:
            text = f"stdin has more than {FRAME_BYTES_MAX:,} bytes, too much for one message"
            raise RillnodeError("message.size", text)
    return bytes(payload)


def route_argument(text: str) -> Route:
    """An argument that is a route."""
    try:
        route = parse_route(text)
    except CodecError as error:
        raise argparse.ArgumentTypeError(f"expected a route: {error.text}") from None
    if not route:
        raise argparse.ArgumentTypeError("expected a route, such as 'peer/core;echo'")
    return route


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _channel_key(text: str) -> str:
    try:
        return parse_channel_key(text).hex()
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.text) from None


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected hexadecimal digits, not {text!r}") from None
