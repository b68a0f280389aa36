"""`rillnode stream pull`, `tail` and `follow`: entries as lines."""

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rillnode.codecs.errors import RequestError
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.interrupting import while_read
from rillnode.node.cli.parsing import (
    Commands,
    Parser,
    UsageError,
    add_verb,
    moment,
    positive_number,
    seconds,
    whole_number,
)
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.codecs.entries import Entry
    from rillnode.node.client import Client, Following, Stream
    from rillnode.node.client.stream import Start
    from rillnode.node.entry_lines import LineFormat

_PULL_ENTRIES: Final = 5_000
_COUNT: Final = 100
"""Entries that `pull` prints where nothing says how many."""

KEEP_SECONDS: Final = 1.0
"""How often a position is written while entries come."""

Line = Callable[["Entry"], bytes]
"""Makes a line of an entry."""

_TIMES_TEXT: Final = (
    "A TIME is how long ago (90s, 1h, 1d12h), by the node's clock, or a moment in ISO 8601 with\n"
    "its zone (2027-01-15T08:00Z). A time before all entries means the first one kept; a time in\n"
    "the future means the end."
)
_FORMATS_TEXT: Final = (
    "On a terminal an entry is shown as partition:index, time, [key] and {headers} if it has\n"
    "any, and text; elsewhere, or with --format json, as a JSON object with its data under\n"
    "`json` (an object or array), `text` or `base64`, its key under `key`, or `key_base64` if it\n"
    "is not text, and its headers under `headers` and `headers_base64`. --format raw prints the\n"
    "data and a newline, hex its hexadecimal digits."
)
_FOLLOWING_TEXT: Final = (
    f"{_FORMATS_TEXT}\n\nThe exit code is 1 if --timeout ends it before --count entries arrived."
)


_WHERE_TEXT: Final = (
    "A CONDITION compares fields of JSON entries with numbers, texts, true, false or null, as in\n"
    '\'mag > 5 and not (place.country = "CL" or tags[0] != "test")\'; a field alone holds if\n'
    "it exists and is neither null nor false. $key is the entry's key, $headers.NAME a header.\n"
    "The node does the filtering. --entry-key K is short for --where '$key = \"K\"'; with both,\n"
    "both must hold."
)

_TAIL_EXAMPLES: Final = (
    "rillnode stream tail sensors",
    "rillnode stream tail sensors --from -10",
    "rillnode stream tail sensors --since 1h --where 'mag > 5'",
    "rillnode stream tail sensors --from start --entry-key m7",
    "rillnode stream tail sensors --from start --count 5 --timeout 10",
    "rillnode stream tail sensors --consumer worker",
)


def add(verbs: Commands) -> None:
    """Add the verbs."""
    parser = add_verb(
        verbs, "pull", pull,
        summary="print stored entries",
        text=f"{_TIMES_TEXT}\n\n{_WHERE_TEXT}\n\n{_FORMATS_TEXT}",
        examples=[
            "rillnode stream pull sensors --last 10",
            "rillnode stream pull sensors --since 1h --until 30m",
            "rillnode stream pull sensors --where 'mag > 5 and not test' --count 10",
            "rillnode stream pull sensors --entry-key m7 --last 1000",
            "rillnode stream pull sensors --from 1000 --count 10",
            "rillnode stream pull sensors --count 100000 | jq .json.temperature",
        ],
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", help="name of the stream")
    parser.add_argument(
        "--partition", type=whole_number, metavar="N",
        help="which (default: that of --entry-key, or 0)",
    )  # fmt: skip
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from", type=_first, dest="start", metavar="INDEX",
        help="first index, or start (default: the first that is kept)",
    )  # fmt: skip
    start.add_argument(
        "--last", type=positive_number, metavar="N", help="the last N entries before --until"
    )
    start.add_argument("--since", type=moment, metavar="TIME", help="entries from this time on")
    parser.add_argument("--until", type=moment, metavar="TIME", help="entries before this time")
    parser.add_argument(
        "--count", type=positive_number, metavar="N",
        help="entries at most (default: 100; all, with --last or --since)",
    )  # fmt: skip
    _add_where(parser)
    _add_format(parser)
    add_connection_options(parser)
    add_tail(verbs)
    _add_follow(verbs)


def add_tail(verbs: Commands, name: str = "tail", examples: Sequence[str] = _TAIL_EXAMPLES) -> None:
    """Add the verb that follows a stream, under this or its short name."""
    parser = add_verb(
        verbs, name, tail,
        summary="print entries as they arrive",
        text=f"{_TIMES_TEXT}\n\n{_WHERE_TEXT}\n\n{_FOLLOWING_TEXT}",
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
        help="start, end, an index, or -N for the last N of each partition (default: end)",
    )  # fmt: skip
    start.add_argument(
        "--since", type=moment, dest="start", metavar="TIME", help="entries from this time on"
    )
    start.add_argument(
        "--consumer", metavar="NAME",
        help="resume where this consumer stopped; printed entries are acknowledged",
    )  # fmt: skip
    _add_where(parser)
    _add_following(parser)


def _add_follow(verbs: Commands) -> None:
    parser = add_verb(
        verbs, "follow", follow,
        summary="print entries of all streams of a pattern as they arrive",
        text="In a PATTERN * stands for any characters, ? for one, [abc] for one of these.\n"
        "Streams that are made later are read from their first entry on. The name of an entry's\n"
        f"stream stands before it, or under `stream`.\n\n{_FOLLOWING_TEXT}",
        examples=[
            "rillnode stream follow 'sensors.*'",
            "rillnode stream follow 'sensors.*' --from start --count 10",
            "rillnode stream follow 'sensors.*' --position sensors.position",
        ],
    )  # fmt: skip
    parser.add_argument("pattern", metavar="PATTERN", help="of names of streams")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from", choices=["start", "end"], default="end", dest="start", metavar="WHERE",
        help="start or end of those that are there (default: end)",
    )  # fmt: skip
    start.add_argument(
        "--position", type=Path, metavar="FILE",
        help="go on where the position in this file is, and keep it there (default: start)",
    )  # fmt: skip
    _add_following(parser)


async def pull(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print what is there."""
    line = _lines(args, terminal)
    count: int | None = args.count
    if count is None and args.last is None and args.since is None:
        count = _COUNT
    printed = 0
    where = _wanted(args)
    async with connected(args, terminal) as client:
        stream = await _open(client, args.name)
        if args.partition is None:
            args.partition = stream.partition_of(args.entry_key)
        first, index, end = await _range(args, client, stream)
        while index < end and printed != count:
            limit = min(end - index, _PULL_ENTRIES)
            if count is not None:
                limit = min(limit, count - printed)
            entries = await stream.pull(
                index, limit, until=end, where=where, partition=args.partition
            )
            terminal.write(b"".join(map(line, entries)))
            printed += len(entries)
            if len(entries) < limit:
                break
            index = entries[-1].index + 1
    if not printed:
        which = "entry meets it" if where else "entries"
        terminal.message(f"no {which} from index {first} on in partition {args.partition}")
    elif printed == count and index < end and args.count is None:
        of = "that meet it" if where else f"of {end - first:,} entries"
        terminal.message(f"the first {printed} {of}: see --count and --last")


async def _range(
    args: argparse.Namespace, client: "Client", stream: "Stream"
) -> tuple[int, int, int]:
    """The first index to pull, twice, and the end of the range."""
    partition: int = args.partition
    extents = (await client.describe(args.name)).partitions
    if partition >= len(extents):
        await stream.pull(partition=partition)  # which says what there is
    first, end = extents[partition].first_index, extents[partition].next_index
    if args.until is not None:
        end = min(end, await stream.index_at(args.until, partition=partition))
    if args.last is not None:
        first = max(first, end - args.last)
    elif args.since is not None:
        first = await stream.index_at(args.since, partition=partition)
    elif args.start is not None:
        first = max(first, args.start)
    return first, first, end


async def tail(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print what comes."""
    for option in ("where", "entry_key"):
        if args.consumer is not None and getattr(args, option) is not None:
            name = option.replace("_", "-")
            raise UsageError(args.command, f"argument --{name}: not allowed with --consumer")
    line = _lines(args, terminal)
    async with connected(args, terminal) as client, while_read(terminal):
        stream = await _open(client, args.name)
        if args.consumer is not None:
            left = await _consume(args, terminal, stream, line)
        else:
            left = await _follow(args, terminal, stream, line)
    return _ended(args, terminal, left)


async def _follow(
    args: argparse.Namespace, terminal: Terminal, stream: "Stream", line: Line
) -> int | None:
    """Print entries until enough came, or none in time; return how many are missing."""
    import asyncio

    left: int | None = args.count
    async with aclosing(
        stream.batches(start=args.start, where=_wanted(args), partitions=args.partitions)
    ) as batches:
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
    args: argparse.Namespace, terminal: Terminal, stream: "Stream", line: Line
) -> int | None:
    """As `_follow`, from where a consumer stopped."""
    from rillnode.node.client.consumer import IN_FLIGHT

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


async def follow(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print what comes to streams of a pattern."""
    import asyncio

    form, line = _format(args, terminal), _lines(args, terminal)
    left: int | None = args.count
    start = args.start if args.position is None else _position(args)
    async with (
        connected(args, terminal) as client,
        client.follow(args.pattern, start=start) as following,
    ):
        kept_at = time.monotonic()
        try:
            async with while_read(terminal):
                while left != 0:
                    async with asyncio.timeout(args.timeout):
                        stream, entry = await anext(following)
                    terminal.write(_of_stream(form, stream, line(entry)))
                    terminal.flush()
                    left = None if left is None else left - 1
                    if time.monotonic() > kept_at + KEEP_SECONDS:
                        _keep(args.position, following)
                        kept_at = time.monotonic()
        except TimeoutError:
            pass
        except asyncio.CancelledError:  # by Ctrl-C; what could not be printed is not kept
            _keep(args.position, following)
            raise
        _keep(args.position, following)
    return _ended(args, terminal, left)


def _ended(args: argparse.Namespace, terminal: Terminal, left: int | None) -> int:
    """The exit code of what printed entries until enough came, and `left` are missing."""
    if left:
        terminal.error(f"{args.count - left} of {args.count} entries came in time")
        return Exit.FAILED
    return Exit.OK


def _of_stream(form: "LineFormat", stream: str, line: bytes) -> bytes:
    """The line of an entry with the name of its stream, where the form has room for it."""
    if form == "people":
        return f"{stream} ".encode() + line
    if form == "json":
        return b'{"stream":%s,' % json.dumps(stream).encode() + line[1:]
    return line


def _keep(path: Path | None, following: "Following") -> None:
    from rillnode.actors.log.directories import replace_file

    if path is not None and following.streams:
        replace_file(path, json.dumps(following.position).encode())


def _position(args: argparse.Namespace) -> Any:
    """The position in a file; all from the first entries on where there is none yet."""
    try:
        return json.loads(args.position.read_bytes())
    except FileNotFoundError:
        return "start"
    except (OSError, ValueError) as error:
        text = f"argument --position: {args.position} has no position ({error})"
        raise UsageError(args.command, text) from None


async def _open(client: "Client", name: str) -> "Stream":
    """Open a stream that is there; reading never creates one."""
    await client.describe(name)
    return await client.stream(name)


def _add_following(parser: Parser) -> None:
    """The options of what prints entries as they arrive: when it ends, and how they look."""
    parser.add_argument("--count", type=positive_number, metavar="N", help="stop after N entries")
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="stop if none arrives for this long"
    )
    _add_format(parser)
    add_connection_options(parser)


def _add_where(parser: Parser) -> None:
    parser.add_argument("--entry-key", metavar="TEXT", help="only entries with this key")
    parser.add_argument(
        "--where", type=_condition, metavar="CONDITION", help="only matching entries"
    )


def _wanted(args: argparse.Namespace) -> str:
    """The condition of both options; "" where there is none."""
    where: str = args.where or ""
    if args.entry_key is None:
        return where
    literal = re.sub(r'[\\"]', r"\\\g<0>", args.entry_key)
    return f'$key = "{literal}"' + (f" and ({where})" if where else "")


def _condition(text: str) -> str:
    from rillnode.codecs.where import Where

    try:
        return Where(text).text
    except RequestError as error:
        raise argparse.ArgumentTypeError(error.text) from None


def _add_format(parser: Parser) -> None:
    parser.add_argument(
        "--format", choices=["json", "raw", "hex"], metavar="FORMAT", help="json, raw or hex"
    )


def _lines(args: argparse.Namespace, terminal: Terminal) -> Line:
    """What makes the lines that are asked for, or that suit who reads them."""
    from rillnode.node.entry_lines import line_formatter

    return line_formatter(_format(args, terminal))


def _format(args: argparse.Namespace, terminal: Terminal) -> "LineFormat":
    form: Literal["json", "raw", "hex"] | None = args.format
    return form or ("people" if terminal.for_people else "json")


def _first(text: str) -> int:
    if text == "start":
        return 0
    try:
        return whole_number(text)
    except argparse.ArgumentTypeError as error:
        if not text.startswith("-"):
            raise
        raise argparse.ArgumentTypeError(f"{error}; the last ones are --last {text[1:]}") from None


def _start(text: str) -> "Start":
    if text == "start":
        return "start"
    if text == "end":
        return "end"
    try:
        return -whole_number(text[1:]) if text.startswith("-") else whole_number(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"expected start, end, an index or -N, not {text!r}"
        ) from None
