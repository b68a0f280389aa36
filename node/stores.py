"""Which store a node has: what `[store]` says."""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rillnode.actors.storage import Complete, LogStore, OnHealth
from rillnode.actors.storage.rocks import RocksLogStore
from rillnode.actors.threads import Threads
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config, StoreTable

if TYPE_CHECKING:
    from rillnode.actors.storage.jetstream.options import JetStreamOptions

MakeStore = Callable[[Complete, OnHealth], LogStore]
"""Makes a node's store out of whom it tells of completed work and of its health."""


def store_maker(config: Config, identity: str, threads: Threads) -> MakeStore:
    """What makes the configured store of a node with this identity, on such threads.

    Raises:
        ConfigError: it needs an extra that is not installed.
    """
    if config.store.engine == "jetstream":
        return _jetstream(config, identity)

    def make(complete: Complete, on_health: OnHealth) -> LogStore:
        return RocksLogStore(
            config.store_dir, complete=complete, on_health=on_health, threads=threads
        )

    return make


def _jetstream(config: Config, identity: str) -> MakeStore:
    options = jetstream_options(config.store)
    from rillnode.actors.storage.jetstream.store import JetStreamLogStore

    def make(complete: Complete, on_health: OnHealth) -> LogStore:
        return JetStreamLogStore(
            options,
            complete=complete,
            on_health=on_health,
            identity=identity,
            name=config.name,
            loop=asyncio.get_running_loop(),
        )

    return make


def jetstream_options(table: StoreTable) -> "JetStreamOptions":
    """What a store on JetStream is told.

    Raises:
        ConfigError: the extra that it needs is not installed.
    """
    if find_spec("nats") is None:
        raise ConfigError(
            "config.extra",
            'store.engine: "jetstream" needs the extra of this name: '
            'pip install "rillnode[jetstream]"',
            key="store.engine",
        )
    # Here, because most nodes have neither the store nor the extra.
    from rillnode.actors.storage.jetstream.options import JetStreamOptions

    return JetStreamOptions(
        servers=table.servers,
        prefix=table.prefix,
        replicas=table.replicas,
        credentials=table.credentials_file,
        tls_ca=table.tls_ca,
        tls_cert=table.tls_cert,
        tls_key=table.tls_key,
        monitors=table.monitors,
        sync=table.sync,
    )
