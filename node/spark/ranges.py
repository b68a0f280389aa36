"""Asks a node for ranges from Spark's side, over connections of its own.

Spark runs our code in several processes: one that plans batches and one per task slot. Each keeps
its connection from batch to batch, because a handshake per task would cost more than a small
batch's data. Where several nodes serve the same streams, the first one given is asked, and the
next ones while it does not answer.
"""

import atexit
import importlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, Protocol, TypeVar, cast

import msgspec

from rillnode.codecs.entries import Block
from rillnode.codecs.errors import ConfigError, RequestError, TransportError
from rillnode.node.spark.offsets import Offset, Range

SINK_CLIENT: Final = "rillnode.node.spark.clients:sink_client"
STREAMS_CLIENT: Final = "rillnode.node.spark.clients:streams_client"
FILES_CLIENT: Final = "rillnode.node.spark.export:files_client"
RETRY_SECONDS: Final = 60.0
SHUNNED_SECONDS: Final = 30.0
"""A node that did not answer is asked last for this long."""
_FILE_SCHEME: Final = "file:"

_Answer = TypeVar("_Answer")


class RangeClient(Protocol):
    """A blocking connection to one Spark sink of a node, or to some of its streams."""

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First index kept and next index of every (stream, partition) chosen, as of now."""
        ...

    def created(self) -> dict[str, int]:
        """When each stream chosen was created, ms since 1970, as the last `ends` has found them.

        Another time under the same name is another stream. Without those of which nobody knows.
        """
        ...

    def read(self, part: Range, bytes_max: int) -> tuple[int, list[Block]]:
        """First index kept and whole, consecutive blocks that cover a range from its start on.

        The first block may begin before the range, the last may reach past it; about `bytes_max`
        bytes, at least one block. Empty only if the whole range was trimmed; what a stream had
        that is not the one meant, because it was removed since, counts as trimmed.

        Raises:
            RequestError: `client.behind`, retryable: the node does not know of the range yet, which
                another one has told of.
        """
        ...

    def commit(self, offset: Offset) -> None:
        """Save the index to go on from, per (stream, partition); durable when it returns.

        Without anybody whose position it is, nothing is saved; nor is one in a stream that was
        removed.
        """
        ...

    def consumers(self) -> dict[str, dict[tuple[str, int], int]]:
        """What all consumers of the streams chosen have saved, by their names."""
        ...

    def report(self, progress: dict[str, object]) -> None:
        """Show a small JSON document as the job's progress."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a connection to a node, and what is read there: a sink, or streams.

    Attributes:
        url: `noise://host:port`, or those of several nodes of the same streams, separated by
            commas; `file:///directory` for what a sink has written to files, which takes neither
            an identity nor a key.
        node_identity: the node's Ed25519 identity, hex; those of several nodes, in any order, are
            separated by commas.
        key_file: path of the reader's own key, on every machine that runs tasks; "": the key itself
            is in the variable RILLNODE_KEY of each process's environment. Never the key itself:
            Spark shows options in plans.
        sink: name of a sink; "" where streams are named.
        streams: patterns of stream names, separated by commas, or a JSON list of them.
        consumer: name under which positions in `streams` are saved; "": they are not.
        client: `module:function` that makes a `RangeClient` of these options; "": the one for
            such options.
    """

    url: str
    node_identity: str
    key_file: str
    sink: str = ""
    streams: str = ""
    consumer: str = ""
    client: str = ""

    @classmethod
    def from_options(
        cls, options: Mapping[str, str], environment: Mapping[str, str] = os.environ
    ) -> "ClientOptions":
        """Take the connection's part out of a Spark data source's options.

        Raises:
            ConfigError: one of them is missing, or they contradict each other.
        """
        if options.get("key"):
            raise _wrong("option `key` would show the key in plans: name a file in `key_file`")
        sink, streams = options.get("sink") or "", options.get("streams") or ""
        if bool(sink) == bool(streams):
            raise _wrong("format rillnode needs one of the options `sink` and `streams`")
        url = options.get("url") or ""
        from_files = url.startswith(_FILE_SCHEME)
        key_file = options.get("key_file") or environment.get("RILLNODE_KEY_FILE", "")
        if not from_files and not key_file and not environment.get("RILLNODE_KEY"):
            raise _wrong(
                "option `key_file` of format rillnode is missing, "
                "and neither RILLNODE_KEY_FILE nor RILLNODE_KEY is in the environment"
            )
        for name in ("url",) if from_files else ("url", "node_identity"):
            if not _listed(options.get(name) or ""):
                raise _wrong(f"option `{name}` of format rillnode is missing")
        found = cls(
            url=url,
            node_identity=options.get("node_identity") or "",
            key_file=key_file,
            sink=sink,
            streams=streams,
            consumer=options.get("consumer") or "",
            client=options.get("client") or "",
        )
        if streams and not found.patterns:
            raise _wrong(f"option `streams` names no stream: {streams!r}")
        return found

    @property
    def nodes(self) -> tuple["ClientOptions", ...]:
        """The same for each node alone, in the order given."""
        if self.url.startswith(_FILE_SCHEME):
            return (self,)
        return tuple(replace(self, url=url) for url in _listed(self.url))

    def beginning_at(self, number: int) -> "ClientOptions":
        """The same with another node first: tasks with consecutive numbers ask all in turn."""
        urls = [node.url for node in self.nodes]
        first = number % len(urls)
        return replace(self, url=",".join(urls[first:] + urls[:first]))

    @property
    def factory(self) -> str:
        """The `module:function` that makes the client."""
        if self.client:
            return self.client
        if self.url.startswith(_FILE_SCHEME):
            return FILES_CLIENT
        return SINK_CLIENT if self.sink else STREAMS_CLIENT

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of stream names.

        Raises:
            ConfigError: not a list of texts.
        """
        if not self.streams.lstrip().startswith("["):
            return tuple(name.strip() for name in self.streams.split(",") if name.strip())
        try:
            return msgspec.json.decode(self.streams, type=tuple[str, ...])
        except msgspec.DecodeError as error:
            raise _wrong(f"option `streams` is no list of names: {error}") from None

    def to_options(self) -> dict[str, str]:
        """The same as options for `DataStreamReader.options`."""
        return {name: value for name, value in asdict(self).items() if value}


def _wrong(text: str) -> ConfigError:
    return ConfigError("spark.option", text)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_lock = threading.Lock()
_clients: dict[tuple[int, ClientOptions], RangeClient] = {}
_shunned: dict[ClientOptions, float] = {}


def ask(options: ClientOptions, question: Callable[[RangeClient], _Answer]) -> _Answer:
    """Ask a node over this process's connection for these options, made at the first call.

    What fails and may succeed later is tried at the other nodes at once, and again for up to
    `RETRY_SECONDS`, so that nodes may be restarted under a running job. That is safe, because every
    question may be asked twice.

    Raises:
        ConfigError: `client` names nothing that can be imported.
        TransportError: no node can be reached, or one refuses us.
        RequestError: a node refuses the question.
    """
    deadline = time.monotonic() + RETRY_SECONDS
    pause = 0.1
    while True:
        failure: TransportError | RequestError | None = None
        # In the order given, but for those that did not answer lately.
        for node in sorted(options.nodes, key=_is_shunned):
            try:
                return _ask_once(node, question)
            except (TransportError, RequestError) as error:
                if not error.retryable:
                    raise
                _shunned[node] = time.monotonic() + SHUNNED_SECONDS
                failure = error
        if failure is not None and time.monotonic() + pause > deadline:
            raise failure
        time.sleep(pause)
        pause = min(2 * pause, 5.0)


def _is_shunned(node: ClientOptions) -> bool:
    return time.monotonic() < _shunned.get(node, 0.0)


def _ask_once(options: ClientOptions, question: Callable[[RangeClient], _Answer]) -> _Answer:
    key = (os.getpid(), options)  # a forked worker must not write to its parent's socket
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = _factory(options.factory)(options)
    try:
        return question(client)
    except TransportError:
        with _lock:
            if _clients.get(key) is client:
                del _clients[key]
        client.close()
        raise


def _close_all() -> None:
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        clients = [_clients.pop(key) for key in mine]
    for client in clients:
        client.close()


atexit.register(_close_all)


def _factory(name: str) -> Callable[[ClientOptions], RangeClient]:
    module_name, _, function_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise _wrong(
            f"option `client` must be module:function, {name!r} is not: {error}"
        ) from error
    return cast("Callable[[ClientOptions], RangeClient]", found)


FETCH_BYTES_MAX: Final = 2_097_152


def fetch_ranges(
    options: ClientOptions, ranges: Iterable[Range]
) -> Generator[tuple[Range, list[Block]], None, None]:
    """Blocks of ranges, in order, each list with the part that it covers; gaps without blocks.

    The first block of a part may begin before it, the last may end behind it. What was trimmed
    since the ranges were planned comes as a part that is a gap.

    Raises:
        RequestError: `sink.range`, the node's answers leave a hole.
        TransportError: the node cannot be reached.
    """
    for item in ranges:
        if item.gap:
            yield item, []
            continue
        yield from _fetch_range(options, item)


def _fetch_range(
    options: ClientOptions, item: Range
) -> Generator[tuple[Range, list[Block]], None, None]:
    index = item.start
    while index < item.until:
        first, blocks = _read_blocks(options, item._replace(start=index))
        if first > index:
            lost = item._replace(start=index, until=min(first, item.until), gap=True)
            yield lost, []
            index = lost.until
            continue
        end = index
        for block in blocks:
            if not block.first_index <= end < block.next_index:
                raise _hole(item, end, f"sent a block that begins at {block.first_index}")
            end = block.next_index
        if end == index:
            raise _hole(item, end, "sent nothing")
        yield item._replace(start=index, until=min(end, item.until)), blocks
        index = end


def _read_blocks(options: ClientOptions, item: Range) -> tuple[int, list[Block]]:
    return ask(options, lambda client: client.read(item, FETCH_BYTES_MAX))


def _hole(item: Range, index: int, what: str) -> RequestError:
    return RequestError(
        "sink.range",
        f"asked for stream {item.stream!r} partition {item.partition} from index {index} to "
        f"{item.until}, the node {what}",
    )
