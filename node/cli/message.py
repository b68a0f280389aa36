"""`rillnode route ask` and `route send`: a message along a route, and what comes back."""

import argparse
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import CodecError, ConfigError, RillnodeError
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.parsing import Commands, Parser, UsageError, add_verb, seconds
from rillnode.node.cli.terminal import Terminal, printable
from rillnode.node.installed import WAYS, installed, load

if TYPE_CHECKING:
    from rillnode.codecs.routing.routes import Route
    from rillnode.node.client import Answer, Client
    from rillnode.node.client.correspondent import Correspondent

Opened = Callable[["Client", float], Awaitable["Correspondent"]]
"""Opens what carries the message; has so many seconds for it."""

Way = Callable[[Parser], Callable[[argparse.Namespace], Opened | None]]
"""Adds its options to a verb that sends a message, and gives what looks whether they were used."""

_WAIT_SECONDS: Final = 10.0


def add_verbs(verbs: Commands) -> None:
    """Add the verbs that send a message along a route."""
    asking = add_verb(
        verbs, "ask", ask,
        summary="send a message along a route, and show the answer",
        text="A route is a list of addresses, separated by `;` or `=>`: workers by name, nodes as\n"
        "`peer/NAME` (configured) or `1#HOST:PORT` (Ockam TCP; needs the `admin` grant). The\n"
        "payload is read from stdin unless given. The answer is shown as text, or in\n"
        "hexadecimal if it is not text; its return route leads to its sender.",
        examples=[
            "rillnode route ask echo hello",
            "rillnode route ask 'peer/core;printer' --wait 60 < page.txt",
            "rillnode route ask 'peer/core;echo' --payload-hex 00ff",
            "rillnode route ask --channel 'peer/core;SC_listener' echo hello",
        ],
    )  # fmt: skip
    _add_message(asking)
    asking.add_argument(
        "--wait", type=seconds, default=_WAIT_SECONDS, metavar="SECONDS",
        help=f"how long to wait for an answer (default: {_WAIT_SECONDS:g})",
    )  # fmt: skip
    sending = add_verb(
        verbs, "send", send,
        summary="send a message along a route, and wait for nothing",
        text="Nothing tells whether it arrives. Routes and payloads are as for `route ask`.",
        examples=["rillnode route send '1#hub.example.org:4000;printer' < page.txt"],
    )  # fmt: skip
    _add_message(sending)
    for parser in (asking, sending):
        parser.set_defaults(ways=[way(parser) for way in added(WAYS)])
        add_connection_options(parser)


def _add_message(parser: Parser) -> None:
    parser.add_argument("to", type=route_argument, metavar="ROUTE", help="where to")
    parser.add_argument(
        "text", nargs="?", type=_text, metavar="PAYLOAD", help="the payload, as UTF-8"
    )
    parser.add_argument(
        "--payload-hex", type=_hex, metavar="HEX", help="the payload, in hexadecimal"
    )


async def ask(args: argparse.Namespace, terminal: Terminal) -> None:
    """Send one message, and show its answer."""
    opened = _opened(args)
    payload = await _payload(args, terminal)
    async with connected(args, terminal) as client:
        way = await opened(client, args.wait)
        answer = await way.ask(args.to, payload, timeout_seconds=args.wait)
    _show(answer, terminal)


async def send(args: argparse.Namespace, terminal: Terminal) -> None:
    """Send one message."""
    opened = _opened(args)
    payload = await _payload(args, terminal)
    async with connected(args, terminal) as client:
        way = await opened(client, _WAIT_SECONDS)
        await way.send(args.to, payload)


async def _payload(args: argparse.Namespace, terminal: Terminal) -> bytes:
    text: bytes | None = args.text
    digits: bytes | None = args.payload_hex
    if text is not None and digits is not None:
        raise UsageError(args.command, "argument --payload-hex: not allowed with a PAYLOAD")
    given = digits if text is None else text
    return await _input(terminal) if given is None else given


def added(group: str) -> Iterator[Any]:
    """What plug-ins add to a verb; one that is broken is left out, and told of by its own verbs."""
    for name in installed(group):
        with suppress(ConfigError):
            yield load(group, name)


def _opened(args: argparse.Namespace) -> Opened:
    """What opens the way that the options of a plug-in ask for, else the client itself."""
    asked = (opened for chosen in args.ways if (opened := chosen(args)) is not None)
    return next(asked, _client)


async def _client(client: "Client", _: float) -> "Correspondent":
    return client


def _show(answer: "Answer", terminal: Terminal) -> None:
    from rillnode.codecs.routing.routes import format_route

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
    from rillnode.codecs.limits import FRAME_BYTES_MAX
    from rillnode.node.entry_lines import input_chunks

    if terminal.stdin.isatty():
        terminal.message("Type the payload; Ctrl-D ends it.")
    payload = bytearray()
    async for chunk in input_chunks(terminal.stdin):
        payload += chunk
        if len(payload) > FRAME_BYTES_MAX:
            text = f"stdin has more than {FRAME_BYTES_MAX:,} bytes, too much for one message"
            raise RillnodeError("message.size", text)
    return bytes(payload)


def route_argument(text: str) -> "Route":
    """An argument that is a route."""
    from rillnode.codecs.routing.routes import parse_route

    try:
        route = parse_route(text)
    except CodecError as error:
        raise argparse.ArgumentTypeError(f"expected a route: {error.text}") from None
    if not route:
        raise argparse.ArgumentTypeError("expected a route, such as 'peer/core;echo'")
    return route


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected hexadecimal digits, not {text!r}") from None
