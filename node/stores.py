"""Chooses a node's store by `[store]`."""

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from rillnode.actors.core.threads import Threads
from rillnode.actors.log import Complete, LogStore, OnHealth
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.writer import AtTurnsEnd
from rillnode.actors.log.shared.placement import PlaceOf
from rillnode.actors.ports import Entropy
from rillnode.node.config import Config, SharedStore
from rillnode.node.installed import PLACES, installed, load

if TYPE_CHECKING:
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


def store_maker(
    config: Config,
    entropy: Entropy,
    now_ms: Callable[[], int],
    threads: Threads,
    at_turns_end: AtTurnsEnd | None = None,
) -> MakeStore:
    """What makes the configured store of a node with this source of random bytes, and this time.

    Where the ends of turns are told, a store of the node's own commits small groups there.
    """
    if isinstance(config.store, SharedStore):
        return _shared(config.store, config.views_dir, entropy, now_ms, threads)

    def make(complete: Complete, on_health: OnHealth) -> LogStore:
        return RocksLogStore(
            config.store_dir,
            complete=complete,
            on_health=on_health,
            threads=threads,
            at_turns_end=at_turns_end,
        )

    return make


def _shared(
    table: SharedStore,
    views: Path,
    entropy: Entropy,
    now_ms: Callable[[], int],
    threads: Threads,
) -> MakeStore:
    def make(complete: Complete, on_health: OnHealth) -> LogStore:
        return shared_store(
            table,
            views,
            entropy=entropy,
            now_ms=now_ms,
            threads=threads,
            complete=complete,
            on_health=on_health,
        )

    return make


def shared_store(
    table: SharedStore,
    views: Path,
    *,
    entropy: Entropy,
    now_ms: Callable[[], int],
    threads: Threads,
    complete: Complete,
    on_health: OnHealth,
    copying: bool = False,
) -> "SharedLogStore":
    """A store on a shared log, its views in a directory, on the loop that runs; not open yet."""
    # Here, because most nodes do not have this store.
    from rillnode.actors.log.shared.rocks_view import RocksView
    from rillnode.actors.log.shared.shard import SharedOptions
    from rillnode.actors.log.shared.store import SharedLogStore

    log, blobs = table.open()
    return SharedLogStore(
        log,
        blobs,
        views,
        partial(RocksView, threads=threads, on_loop=True),
        entropy=entropy,
        now_ms=now_ms,
        complete=complete,
        on_health=on_health,
        loop=asyncio.get_running_loop(),
        options=SharedOptions(shards=table.shards, serve=table.serve),
        places=places(),
        copying=copying,
    )
