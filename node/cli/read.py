"""`rillnode stream pull` and `rillnode stream tail`: entries as lines."""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final, Literal

from rillnode.codecs.entries import Entry
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.entries import LineFormat, line_formatter
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import (
    Commands,
    Parser,
    add_verb,
    positive_number,
    seconds,
    whole_number,
)
from rillnode.node.cli.terminal import Terminal
from rillnode.node.client import Client, Stream
from rillnode.node.client.consumer import IN_FLIGHT

_PULL_ENTRIES: Final = 5_000

Line = Callable[[Entry], bytes]
"""Makes a line of an entry."""

_FORMATS_TEXT: Final = (
    "On a terminal an entry is shown as partition:index, time, [key] and {headers} where it has\n"
    "any, and text; elsewhere, or with --format json, as a JSON object with its data under\n"
    "`json` (an object or array), `text` or `base64`, its key under `key`, or `key_base64` where\n"
    "it is no text, and its headers under `headers` and `headers_base64`. --format raw gives the\n"
    "data and a newline, hex its hexadecimal digits."
)


_TAIL_EXAMPLES: Final = (
    "rillnode stream tail sensors",
    "rillnode stream tail sensors --from start --count 5 --timeout 10",
    "rillnode stream tail sensors --consumer worker",
)


def add(verbs: Commands) -> None:
    """Add the verbs."""
    parser = add_verb(
        verbs, "pull", pull,
        summary="print entries that are there",
        usage="NAME [options]",
        text=_FORMATS_TEXT,
        examples=[
            "rillnode stream pull sensors --from 1000 --count 10",
            "rillnode stream pull sensors --count 100000 | jq .json.temperature",
        ],
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="name of the stream")
    parser.add_argument(
        "--partition", type=whole_number, default=0, metavar="N", help="which (default: 0)"
    )
    parser.add_argument(
        "--from", type=whole_number, default=0, dest="start", metavar="INDEX",
        help="first index (default: the first that is kept)",
    )  # fmt: skip
    parser.add_argument(
        "--count", type=positive_number, default=100, metavar="N",
        help="at most so many entries (default: 100)",
    )  # fmt: skip
    _add_format(parser)
    add_connection_options(parser)
    add_tail(verbs)


def add_tail(verbs: Commands, name: str = "tail", examples: Sequence[str] = _TAIL_EXAMPLES) -> None:
    """Add the verb that follows a stream, under this or its short name."""
    parser = add_verb(
        verbs, name, tail,
        summary="print entries as they come",
        usage="NAME [options]",
        text=_FORMATS_TEXT
        + "\n\nThe exit code is 1 when --timeout ends it before --count entries came.",
        examples=examples,
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="name of the stream")
    parser.add_argument(
        "--partition", type=whole_number, action="append", dest="partitions", metavar="N",
        help="which; may be repeated (default: all)",
    )  # fmt: skip
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from", type=_start, default="end", dest="start", metavar="WHERE",
        help="start, end or an index (default: end)",
    )  # fmt: skip
    start.add_argument(
        "--consumer", metavar="NAME",
        help="go on where this consumer stopped; what is printed is acknowledged",
    )  # fmt: skip
    parser.add_argument("--count", type=positive_number, metavar="N", help="stop after so many")
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="stop when none came for so long"
    )
    _add_format(parser)
    add_connection_options(parser)


async def pull(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print what is there."""
    line = line_formatter(_format(args, terminal))
    index, left = args.start, args.count
    async with connected(args, terminal) as client:
        stream = await _open(client, args.name)
        while left:
            limit = min(left, _PULL_ENTRIES)
            entries = await stream.pull(index, limit, partition=args.partition)
            terminal.write(b"".join(map(line, entries)))
            left -= len(entries)
            if len(entries) < limit:
                break
            index = entries[-1].index + 1
    if left == args.count:
        terminal.message(f"no entries from index {args.start} on in partition {args.partition}")
    return Exit.OK


async def tail(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print what comes."""
    line = line_formatter(_format(args, terminal))
    async with connected(args, terminal) as client:
        stream = await _open(client, args.name)
        if args.consumer is not None:
            left = await _consume(args, terminal, stream, line)
        else:
            left = await _follow(args, terminal, stream, line)
    if left:
        terminal.error(f"{args.count - left} of {args.count} entries came in time")
        return Exit.FAILED
    return Exit.OK


async def _follow(
    args: argparse.Namespace, terminal: Terminal, stream: Stream, line: Line
) -> int | None:
    """Print entries until enough came, or none in time; return how many are missing."""
    left: int | None = args.count
    async with aclosing(stream.batches(start=args.start, partitions=args.partitions)) as batches:
        while left != 0:
            try:
                async with asyncio.timeout(args.timeout):
                    batch = (await anext(batches))[:left]
            except TimeoutError:
                break
            terminal.write(b"".join(map(line, batch)))
            terminal.flush()
            left = None if left is None else left - len(batch)
    return left


async def _consume(
    args: argparse.Namespace, terminal: Terminal, stream: Stream, line: Line
) -> int | None:
    """As `_follow`, from where a consumer stopped."""
    left: int | None = args.count
    async with stream.consumer(args.consumer, partitions=args.partitions) as consumer:
        while left != 0:
            batch = await consumer.batch(left or IN_FLIGHT, timeout=args.timeout)
            if not batch:
                break
            terminal.write(b"".join(map(line, batch)))
            terminal.flush()
            for entry in batch:
                consumer.ack(entry)
            left = None if left is None else left - len(batch)
    return left


async def _open(client: Client, name: str) -> Stream:
    """Open a stream that is there; reading never creates one."""
    await client.describe(name)
    return await client.stream(name)


def _add_format(parser: Parser) -> None:
    parser.add_argument(
        "--format", choices=["json", "raw", "hex"], metavar="FORMAT", help="json, raw or hex"
    )


def _format(args: argparse.Namespace, terminal: Terminal) -> LineFormat:
    form: Literal["json", "raw", "hex"] | None = args.format
    return form or ("people" if terminal.for_people else "json")


def _start(text: str) -> int | Literal["start", "end"]:
    if text == "start":
        return "start"
    if text == "end":
        return "end"
    try:
        return whole_number(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected start, end or an index, not {text!r}") from None
