"""`rillnode queue`: work queues, and their dead letters."""

import argparse
import time
from typing import TYPE_CHECKING

from rillnode.codecs.errors import CodecError, RequestError
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.parsing import Commands, Parser, add_noun, add_verb, whole_number
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.codecs.dead_letters import DeadLetter
    from rillnode.node.client import Client, QueueInfo

LETTERS_SHOWN = 10
"""Dead letters that are shown, where nothing else is asked for."""


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "queue", "work queues of streams: ls, show, retry")
    parser = add_verb(
        verbs, "ls", ls,
        summary="list work queues: what waits, what is with workers, what is dead",
        examples=["rillnode queue ls", "rillnode queue ls jobs --json"],
    )  # fmt: skip
    parser.add_argument("stream", nargs="?", default="", metavar="STREAM", help="only this stream")
    add_connection_options(parser)

    parser = add_verb(
        verbs, "show", show,
        summary="show one queue, its workers, and its last dead letters",
        examples=["rillnode queue show jobs prints", "rillnode queue show jobs prints -n 0"],
    )  # fmt: skip
    _add_queue(parser)
    parser.add_argument(
        "-n", "--limit", type=whole_number, default=LETTERS_SHOWN, metavar="N",
        help=f"dead letters at most (default: {LETTERS_SHOWN})",
    )  # fmt: skip

    parser = add_verb(
        verbs, "retry", retry,
        summary="give dead letters of a queue to its workers again, each once",
        text="The letters stay in the stream of dead letters; the queue remembers how far it has\n"
        "taken them back. Entries that the stream no longer keeps are counted and left out.",
        examples=["rillnode queue retry jobs prints", "rillnode queue retry jobs prints -n 1"],
    )  # fmt: skip
    _add_queue(parser)
    parser.add_argument(
        "-n", "--limit", type=whole_number, metavar="N", help="dead letters at most (default: all)"
    )


async def ls(args: argparse.Namespace, terminal: Terminal) -> None:
    """List queues."""
    async with connected(args, terminal) as client:
        infos = [await client.queue(*one) for one in await client.queues(args.stream)]
    rows = [
        {
            "stream": one.stream,
            "queue": one.queue,
            "depth": one.depth,
            "in_flight": one.in_flight,
            "waiting": one.waiting,
            "oldest": _oldest(one),
            "done": one.done,
            "dead": one.dead,
            "workers": one.workers,
            "held": one.held,
        }
        for one in infos
    ]
    terminal.rows(rows, empty="nobody has worked on a queue yet")


async def show(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show one queue."""
    from msgspec.structs import asdict

    async with connected(args, terminal) as client:
        info = await client.queue(args.stream, args.queue)
        letters = await _letters(client, args.stream, args.queue, args.limit)
    terminal.record(
        {
            "stream": info.stream,
            "queue": info.queue,
            "depth": info.depth,
            "in_flight": info.in_flight,
            "waiting": info.waiting,
            "dying": info.dying,
            "oldest": _oldest(info),
            "done": info.done,
            "dead": info.dead,
            "trimmed": info.trimmed,
            "attempts": info.attempts,
            "by_key": info.by_key,
            "held": info.held,
            "partitions": list(map(asdict, info.partitions)),
            "with_workers": list(map(asdict, info.with_workers)),
            "dead_letters": [
                {
                    "index": index,
                    "partition": letter.partition,
                    "entry": letter.index,
                    "attempts": letter.attempts,
                    "reason": letter.reason,
                }
                for index, letter in letters
            ],
        }
    )


async def retry(args: argparse.Namespace, terminal: Terminal) -> None:
    """Give dead letters again."""
    async with connected(args, terminal) as client:
        limit = 2**63 if args.limit is None else args.limit
        back = await client.take_back(args.stream, args.queue, entries_max=limit)
    terminal.record(
        {"stream": args.stream, "queue": args.queue, "taken": back.taken, "gone": back.gone}
    )


def _add_queue(parser: Parser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    parser.add_argument("queue", metavar="QUEUE", help="name of the queue")
    add_connection_options(parser)


def _oldest(info: "QueueInfo") -> str:
    """How long the oldest entry waits that is not settled."""
    if not info.oldest_at:
        return ""
    return f"{max(0.0, time.time() - info.oldest_at / 1_000):.0f} s"


async def _letters(
    client: "Client", stream: str, queue: str, limit: int
) -> "list[tuple[int, DeadLetter]]":
    """The last dead letters of a queue, with their indexes."""
    from rillnode.codecs.dead_letters import DeadLetter

    if not limit:
        return []
    try:
        dead = await client.describe(f"{stream}.dead")
    except RequestError as error:
        if error.code == "stream.unknown":
            return []
        raise
    first, end = dead.partitions[0].first_index, dead.partitions[0].next_index
    letters = await client.stream(dead.name)
    found: list[tuple[int, DeadLetter]] = []
    while end > first and len(found) < limit:
        begin = max(first, end - 1_000)
        for entry in reversed(await letters.pull(begin, end - begin)):
            try:
                letter = DeadLetter.of(entry)
            except CodecError:
                continue  # somebody else has pushed it
            if letter.queue == queue and len(found) < limit:
                found.append((entry.index, letter))
        end = begin
    return found[::-1]
