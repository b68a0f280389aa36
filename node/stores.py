"""Which store a node has: what `[store]` says."""

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from rillnode.actors.core.threads import Threads
from rillnode.actors.log import Complete, LogStore, OnHealth
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.shared.placement import PlaceOf
from rillnode.actors.ports import Entropy
from rillnode.node.config import Config, StoreTable
from rillnode.node.installed import PLACES, installed, load

if TYPE_CHECKING:
    from rillnode.actors.jetstream.options import JetStreamOptions
    from rillnode.actors.log.shared.store import SharedLogStore

MakeStore = Callable[[Complete, OnHealth], LogStore]
"""Makes a node's store out of whom it tells of completed work and of its health."""


@lru_cache
def places() -> tuple[PlaceOf, ...]:
    """What plug-ins say of where their names lie in a shared store.

    All that are installed are asked, whatever the configuration says: the nodes of one log have to
    agree, and so must have the same packages that name something here.
    """
    return tuple(load(PLACES, name) for name in installed(PLACES))


def store_maker(config: Config, entropy: Entropy, threads: Threads) -> MakeStore:
    """What makes the configured store of a node with this source of random bytes."""
    if config.store.engine == "jetstream":
        return _jetstream(config, entropy, threads)

    def make(complete: Complete, on_health: OnHealth) -> LogStore:
        return RocksLogStore(
            config.store_dir, complete=complete, on_health=on_health, threads=threads
        )

    return make


def _jetstream(config: Config, entropy: Entropy, threads: Threads) -> MakeStore:
    def make(complete: Complete, on_health: OnHealth) -> LogStore:
        return shared_store(
            config.store,
            config.views_dir,
            entropy=entropy,
            threads=threads,
            complete=complete,
            on_health=on_health,
        )

    return make


def shared_store(
    table: StoreTable,
    views: Path,
    *,
    entropy: Entropy,
    threads: Threads,
    complete: Complete,
    on_health: OnHealth,
    copying: bool = False,
) -> "SharedLogStore":
    """A store on JetStream with its views in a directory, on the loop that runs, not open yet."""
    # Here, because most nodes do not have this store.
    from rillnode.actors.jetstream.blobs import JetStreamBlobs
    from rillnode.actors.jetstream.log import JetStreamLog
    from rillnode.actors.log.shared.rocks_view import RocksView
    from rillnode.actors.log.shared.shard import SharedOptions
    from rillnode.actors.log.shared.store import SharedLogStore

    log = JetStreamLog(jetstream_options(table))
    return SharedLogStore(
        log,
        JetStreamBlobs(log),
        views,
        partial(RocksView, threads=threads),
        entropy=entropy,
        complete=complete,
        on_health=on_health,
        loop=asyncio.get_running_loop(),
        options=SharedOptions(shards=table.shards),
        places=places(),
        copying=copying,
    )


def jetstream_options(table: StoreTable) -> "JetStreamOptions":
    """What the engine on JetStream is told."""
    from rillnode.actors.jetstream.options import JetStreamOptions

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
