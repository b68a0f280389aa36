"""Resends of a long stream to a Streamr client: the newest, from a time on, of one chain.

    python -m benchmarks.streamr_resend [--messages N] [--repeat N]

The stream is written into the store of a node that is not running; what is asked for afterwards is
asked of `rillnode run` over its WebSocket, each time with the time until the last message is there.
The first answer of each kind comes from a node that has just been started.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.fanout import start_streamr
from benchmarks.fanout_sockets import Socket
from benchmarks.store import Counter
from rillnode.actors.log import Append, PutStream, StreamRecord, log_id
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.codecs.entries import EntryKind, pack_body
from rillnode.codecs.streamr.message import STORED_VERSION, encode_message
from rillnode.codecs.streamr.sort_keys import published_keys
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage

_STREAM: Final = "resend"
_PATH: Final = "/api/v1/ws?controlLayerVersion=2&messageLayerVersion=32"
_TOGETHER: Final = 1_000
_WINDOW: Final = 20
_ASKED: Final = 1_000
_CHAINS: Final = 10
_BEGIN_MS: Final = 1_600_000_000_000
_CONTENT: Final = json.dumps({"data": "x" * 200}, separators=(",", ":"))
_UNICAST: Final = b"[2,1,"
_RESENT: Final = b"[2,5,"


def _messages(count: int) -> Iterator[StreamMessage]:
    """One each millisecond, of several publishers in turn."""
    for number in range(count):
        publisher, at = f"0x{number % _CHAINS:040x}", _BEGIN_MS + number
        yield StreamMessage(
            id=MessageId(_STREAM, 0, at, 0, publisher, f"chain {number % _CHAINS}"),
            previous=MessageRef(at - _CHAINS, 0) if number >= _CHAINS else None,
            content=_CONTENT,
        )


def _fill(store_dir: Path, count: int) -> None:
    """Write the stream; its entries are what a node would have stored."""
    counter = Counter()
    store = RocksLogStore(store_dir, complete=counter, on_health=lambda _: None)
    store.open()
    made = PutStream(record=StreamRecord(name=_STREAM))
    store.submit(made)
    counter.wait(1)
    log, source, appended = log_id(made.record.id, 0), _messages(count), 0
    while batch := [message for _, message in zip(range(_TOGETHER), source, strict=False)]:
        texts = [encode_message(message, STORED_VERSION) for message in batch]
        append = Append(
            log=log,
            kind=EntryKind.STREAMR,
            received_at=batch[-1].id.timestamp,
            count=len(batch),
            body=pack_body([text if isinstance(text, bytes) else text.encode() for text in texts]),
            keys=published_keys([message.id for message in batch]),
        )
        store.submit(append)
        appended += 1
        counter.wait(1 + appended - _WINDOW)
    counter.wait(1 + appended)
    store.close()


def _requests(count: int) -> dict[str, tuple[list[object], int]]:
    """What is asked, as requests of version 2, and how many messages answer it."""
    middle, asked = _BEGIN_MS + count // 2, min(_ASKED, count // 2)
    chain = ["0x" + "0" * 40, "chain 0"]
    first = middle - middle % _CHAINS
    last = first + (asked - 1) * _CHAINS
    asked_of_chain = min(last, _BEGIN_MS + count - 1) // _CHAINS - first // _CHAINS + 1
    head = ["r", _STREAM, 0]
    return {
        f"last {asked:,}": ([2, 11, *head, asked, None], asked),
        "last 1": ([2, 11, *head, 1, None], 1),
        f"range in the middle, {asked:,}": (
            [2, 13, *head, [middle, None], [middle + asked - 1, None], None, None, None],
            asked,
        ),
        f"range of one chain, {asked_of_chain:,}": (
            [2, 13, *head, [first, 0], [last, 0], *chain, None],
            asked_of_chain,
        ),
        f"from, the newest {asked:,}": (
            [2, 12, *head, [_BEGIN_MS + count - asked, None], None, None],
            asked,
        ),
    }


def _timed(socket: Socket, request: list[object], wanted: int) -> float:
    """Milliseconds until a resend has brought all.

    Raises:
        RuntimeError: it has brought another number of messages.
    """
    found, text = 0, json.dumps(request).encode()
    begun = time.perf_counter()
    answer = socket.ask(text)
    while not answer.startswith(_RESENT):
        found += answer.startswith(_UNICAST)
        answer = socket.receive()
    took = time.perf_counter() - begun
    if found != wanted:
        raise RuntimeError(f"{wanted} messages are in the stream, {found} came")
    return took * 1e3


def _measure(directory: Path, count: int, repeat: int, show: Callable[..., None]) -> None:
    with start_streamr(directory):
        pass  # it has made its directories
    begun = time.perf_counter()
    _fill(directory / "node" / "data" / "store", count)
    print(f"{count:,} messages written in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
    for name, (request, wanted) in _requests(count).items():
        with start_streamr(directory) as endpoint:
            socket = Socket(endpoint.port, _PATH)
            first = _timed(socket, request, wanted)
            times = [_timed(socket, request, wanted) for _ in range(repeat)]
        show(name, f"{first:.1f}", f"{statistics.median(times):.1f}", f"{max(times):.1f}")


def main() -> None:
    """Write the stream, ask, and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streamr_resend")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--dir", type=Path, help="on the disk to be measured")
    arguments = parser.parse_args()
    table = Table("asked for", "first, ms", "median, ms", "slowest, ms")
    with tempfile.TemporaryDirectory(prefix="resend-", dir=arguments.dir) as directory:
        _measure(Path(directory), arguments.messages, arguments.repeat, table.add_row)
    Console().print(table)


if __name__ == "__main__":
    main()
