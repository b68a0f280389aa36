"""What the Spark side asks of a node, and the connections that ask it.

Spark runs our code in several processes: one that plans batches and one per task slot. Each keeps
its connection from batch to batch, because a handshake per task would cost more than a small
batch's data.
"""

import atexit
import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, cast

from rillnode.codecs.entries import Block
from rillnode.codecs.errors import ConfigError, TransportError

DEFAULT_CLIENT: Final = "rillnode.node.client.sink:sink_client"
RETRY_SECONDS: Final = 60.0

_Answer = TypeVar("_Answer")


class RangeClient(Protocol):
    """A blocking connection to one Spark sink of a node."""

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First index kept and next index of every (stream, partition) of the sink, as of now."""
        ...

    def read(
        self, stream: str, partition: int, index: int, until: int, bytes_max: int
    ) -> tuple[int, list[Block]]:
        """First index kept and whole, consecutive blocks that cover the range from `index` on.

        The first block may begin below `index`, the last may reach past `until`; about
        `bytes_max` bytes, at least one block. Empty only if the whole range was trimmed.
        """
        ...

    def commit(self, positions: dict[tuple[str, int], int]) -> None:
        """Save the index to go on from, per (stream, partition); durable when it returns."""
        ...

    def report(self, progress: dict[str, object]) -> None:
        """Show a small JSON document as the job's progress."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to reach a node's sink.

    Attributes:
        url: `noise://host:port`.
        node_identity: the node's Ed25519 identity, hex.
        key_file: path of the job's own key. Never the key itself: Spark shows options in plans.
        sink: name of the sink.
        client: `module:function` that makes a `RangeClient` of these options.
    """

    url: str
    node_identity: str
    key_file: str
    sink: str
    client: str = DEFAULT_CLIENT

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "ClientOptions":
        """Take the connection's part out of a Spark data source's options.

        Raises:
            ConfigError: one of them is missing.
        """
        values: dict[str, str] = {}
        for name in ("url", "node_identity", "key_file", "sink"):
            value = options.get(name)
            if not value:
                raise ConfigError("spark.option", f"option `{name}` of format rillnode is missing")
            values[name] = value
        return cls(**values, client=options.get("client") or DEFAULT_CLIENT)

    def to_options(self) -> dict[str, str]:
        """The same as options for `DataStreamReader.options`."""
        return {
            "url": self.url,
            "node_identity": self.node_identity,
            "key_file": self.key_file,
            "sink": self.sink,
            "client": self.client,
        }


_lock = threading.Lock()
_clients: dict[tuple[int, ClientOptions], RangeClient] = {}


def ask(options: ClientOptions, question: Callable[[RangeClient], _Answer]) -> _Answer:
    """Ask the node over this process's connection for these options, made at the first call.

    A lost connection is made again for up to `RETRY_SECONDS`, so that a node may be restarted
    under a running job. That is safe, because every question may be asked twice.

    Raises:
        ConfigError: `client` names nothing that can be imported.
        TransportError: the node cannot be reached, or refuses us.
        RequestError: the node refuses the question.
    """
    deadline = time.monotonic() + RETRY_SECONDS
    pause = 0.1
    while True:
        try:
            return _ask_once(options, question)
        except TransportError as error:
            if not error.retryable or time.monotonic() + pause > deadline:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)


def _ask_once(options: ClientOptions, question: Callable[[RangeClient], _Answer]) -> _Answer:
    key = (os.getpid(), options)  # a forked worker must not write to its parent's socket
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = _factory(options.client)(options)
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
        raise ConfigError(
            "spark.option", f"option `client` must be module:function, {name!r} is not: {error}"
        ) from error
    return cast("Callable[[ClientOptions], RangeClient]", found)
