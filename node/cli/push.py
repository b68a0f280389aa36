"""`rillnode stream push`: pushes stdin, one entry per line."""

import argparse
import os
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.parsing import Commands, UsageError, add_verb, stream_name, whole_number
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    import asyncio

    from rillnode.codecs.keyed import Headers
    from rillnode.node.client import Client, Stream
    from rillnode.node.entry_lines import InputReader

_WINDOW_ENTRIES: Final = 16_384
_WINDOW_BYTES: Final = 8_388_608

_INTERRUPTED_SECONDS: Final = 2.0
"""How long an interrupt waits for confirms that are under way."""

Advance = Callable[[int, int], None]
"""Told of entries and bytes that were read."""


_EXAMPLES: Final = (
    "echo hello | rillnode stream push greetings --create",
    "rillnode stream push sensors --format json --key-field device < readings.jsonl",
    "echo on | rillnode stream push switches --entry-key lamp --header sender=hall",
    "rillnode stream push pictures --format raw < picture.png",
)


def add(verbs: Commands, name: str = "push", examples: Sequence[str] = _EXAMPLES) -> None:
    """Add the verb, under this or its short name."""
    parser = add_verb(
        verbs, name, push,
        summary="push entries from stdin, and wait until all are durable",
        usage="NAME [options] < FILE",
        text="Entries go out as they are read; at the end, one line per partition says how many\n"
        "were stored and where. --format says what an entry is: `lines`, each line as it is;\n"
        "`json`, the same but refused unless it is JSON; `hex`, each line in hexadecimal;\n"
        "`raw`, all of stdin is one entry. Entries with the same key go to one partition, by\n"
        "the key's CRC-32.",
        examples=examples,
    )  # fmt: skip
    parser.left_over = f"entries are read from stdin: `echo TEXT | {parser.prog} NAME`"
    parser.add_argument("name", type=stream_name, metavar="NAME", help="name of the stream")
    parser.add_argument(
        "--format", choices=["lines", "json", "raw", "hex"], default="lines", metavar="FORMAT",
        help="lines, json, raw or hex (default: lines)",
    )  # fmt: skip
    parser.add_argument(
        "--partition", type=whole_number, metavar="N",
        help="which (default: that of the entry's key, or 0)",
    )  # fmt: skip
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--entry-key", metavar="TEXT", help="the key of all entries")
    key.add_argument(
        "--key-field", metavar="FIELD",
        help="take each entry's key from this field of its JSON object; dots lead into inner "
        "objects",
    )  # fmt: skip
    parser.add_argument(
        "--header", type=_header, action="append", default=[], dest="headers",
        metavar="NAME=VALUE", help="a header of all entries; may be repeated",
    )  # fmt: skip
    parser.add_argument("--create", action="store_true", help="create a missing stream")
    add_connection_options(parser)


async def push(args: argparse.Namespace, terminal: Terminal) -> None:
    """Push stdin."""
    import asyncio

    from rillnode.node.entry_lines import InputReader

    if args.key_field and args.format != "json":
        raise UsageError(args.command, "--key-field needs --format json")
    headers = dict(args.headers)
    if len(headers) < len(args.headers):
        raise UsageError(args.command, "--header names the same header twice")
    async with connected(args, terminal) as client:
        if not args.create:
            await _describe(client, args.name)
        stream = await client.stream(args.name)
        reader = InputReader(args.format, args.key_field or None)
        pusher = _Pusher(stream, reader, args.entry_key, headers or None, args.partition)
        if terminal.stdin.isatty():
            terminal.message("Type entries; Ctrl-D ends the input.")
        try:
            with _progress(terminal) as advance:
                await _push_input(terminal, reader, pusher, advance)
        except RillnodeError:
            await pusher.settle_rest()
            terminal.error(f"{_counted(pusher.stored)} stored before the error")
            raise
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERRUPTED_SECONDS):
                    await pusher.settle_rest()
            open_count = pusher.pushed - pusher.stored
            rest = f"; {_counted(open_count)} sent and not confirmed" if open_count else ""
            terminal.error(f"{_counted(pusher.stored)} stored before the interrupt{rest}")
            _show(terminal, pusher)
            raise
    if not pusher.pushed:
        terminal.message("nothing on stdin, nothing pushed")
    _show(terminal, pusher)


async def _describe(client: "Client", name: str) -> None:
    """See that a stream is there; else say what would make it.

    Raises:
        RequestError: it is not.
    """
    try:
        await client.describe(name)
    except RequestError as error:
        if error.code != "stream.unknown":
            raise
        raise RequestError(error.code, f"{error.text}; --create makes a missing one") from None


def _show(terminal: Terminal, pusher: "_Pusher") -> None:
    """Say what was stored and where."""
    if rows := pusher.rows():
        terminal.rows(rows, empty="")
        terminal.flush()


def _counted(entries: int) -> str:
    return "1 entry was" if entries == 1 else f"{entries:,} entries were"


async def _push_input(
    terminal: Terminal, reader: "InputReader", pusher: "_Pusher", advance: Advance
) -> None:
    from rillnode.node.entry_lines import input_chunks

    async for chunk in input_chunks(terminal.stdin):
        await pusher.add(reader.feed(chunk))
        advance(pusher.pushed, len(chunk))
    await pusher.add(reader.finish())
    await pusher.settle()


class _Pusher:
    """Keeps a bounded number of entries under way and counts what was confirmed."""

    def __init__(
        self,
        stream: "Stream",
        reader: "InputReader",
        key: str | None,
        headers: "Headers | None",
        partition: int | None,
    ) -> None:
        self.pushed = 0
        self._stream = stream
        self._reader = reader
        self._key = key
        self._headers = headers
        self._partition = partition
        self._window: deque[tuple[int, int, asyncio.Future[int]]] = deque()
        self._bytes = 0
        self._extents: dict[int, list[int]] = {}

    @property
    def stored(self) -> int:
        """Entries confirmed so far."""
        return sum(count for count, _, _ in self._extents.values())

    def rows(self) -> list[dict[str, Any]]:
        """What was confirmed, by partition."""
        return [
            {
                "stream": self._stream.name,
                "partition": partition,
                "entries": count,
                "first_index": first,
                "last_index": last,
            }
            for partition, (count, first, last) in sorted(self._extents.items())
        ]

    async def add(self, items: Iterator[bytes]) -> None:
        """Push entries; waits while too much is unconfirmed."""
        for data in items:
            key, headers = self._reader.key if self._key is None else self._key, self._headers
            partition = self._partition
            if partition is None:
                partition = self._stream.partition_of(key)
            future = self._stream.push_nowait(data, key=key, headers=headers, partition=partition)
            self._window.append((partition, len(data), future))
            self._bytes += len(data)
            self.pushed += 1
            while len(self._window) > _WINDOW_ENTRIES or self._bytes > _WINDOW_BYTES:
                await self._settle_one()

    async def settle(self) -> None:
        """Wait until everything is confirmed."""
        while self._window:
            await self._settle_one()

    async def settle_rest(self) -> None:
        """After an error: wait for what is still under way, and count what was stored."""
        while self._window:
            try:
                await self._settle_one()
            except RillnodeError:
                continue

    async def _settle_one(self) -> None:
        partition, size, future = self._window.popleft()
        self._bytes -= size
        index = await future
        extent = self._extents.setdefault(partition, [0, index, index])
        extent[0] += 1
        extent[2] = index


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}")
    return name, value


@contextmanager
def _progress(terminal: Terminal) -> Generator[Advance]:
    """A progress bar on a terminal's stderr, while something else than the user is the input."""
    if terminal.quiet or not terminal.err.isatty() or terminal.stdin.isatty():
        yield lambda _entries, _bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=terminal.err, _environ=terminal.environ)
    columns = (
        TextColumn("{task.fields[entries]:,} entries"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("push", total=_size(terminal), entries=0)
        yield lambda entries, size: progress.update(task, advance=size, entries=entries)


def _size(terminal: Terminal) -> int | None:
    """Bytes on stdin, where it is a file."""
    try:
        info = os.fstat(terminal.stdin.fileno())
    except OSError:
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None
