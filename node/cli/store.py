"""`rillnode store`: moves all that a node holds from one engine to the other, and back."""

import argparse
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.cli.parsing import Commands, add_noun, add_verb
from rillnode.node.cli.progress import progress
from rillnode.node.cli.resting import add_resting_options, configured, resting_store
from rillnode.node.cli.terminal import Terminal
from rillnode.node.installed import ENGINES, OWN_ENGINE, installed

if TYPE_CHECKING:
    from rillnode.actors.log import Complete
    from rillnode.actors.log.rocks.copy import RocksCopy
    from rillnode.actors.log.shared.copying import SharedSource, SharedTarget
    from rillnode.actors.log.shared.store import SharedLogStore
    from rillnode.node.config import Config, SharedStore

_VIEWS: Final = "views.copied"
"""Directory beside a node's views, while a shared store is read."""


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    try:
        shared = list(installed(ENGINES))
    except ConfigError:  # it stops no other command
        return
    if not shared:
        return
    verbs = add_noun(commands, "store", "move a node's store to another engine")
    parser = add_verb(
        verbs, "copy", copy,
        summary="copy a node's store into another engine, and compare the two",
        usage="--from ENGINE --to ENGINE -c FILE [options]",
        text="FILE has [store] for the shared log; the store on RocksDB is in its data_dir. The\n"
        "source is not changed. Run it while the node runs, as often as you like: each run\n"
        "resumes where the last one stopped, and copies only what is new. Then stop the nodes and\n"
        "run it with --final, which only has to copy what came since the last run. No node starts\n"
        "on the target before that. Every partition is read back and compared.",
        examples=[
            f"rillnode store copy --from {OWN_ENGINE} --to {shared[0]} -c edge/three.toml",
            f"rillnode store copy --from {OWN_ENGINE} --to {shared[0]} -c edge/three.toml --final",
        ],
    )  # fmt: skip
    for option, target, what in (("from", "source", "from"), ("to", "target", "into")):
        parser.add_argument(
            f"--{option}", dest=target, required=True,
            choices=(OWN_ENGINE, *shared), metavar="ENGINE",
            help=f"copy {what} this engine: {OWN_ENGINE} or {' or '.join(shared)}",
        )  # fmt: skip
    parser.add_argument(
        "--final", action="store_true", help="the nodes are stopped: let them start on the target"
    )
    add_resting_options(parser)


async def copy(args: argparse.Namespace, terminal: Terminal) -> None:
    """Copy a store."""
    from rillnode.actors.log.copying import bytes_to_copy, copy_store
    from rillnode.node.config import SharedStore

    config, _ = configured(args, terminal)
    if args.source == args.target:
        text = f"--from and --to both name {args.source}"
        raise ConfigError("config.conflict", text)
    to_rocks = args.target == OWN_ENGINE
    engine = args.source if to_rocks else args.target
    if OWN_ENGINE not in (args.source, args.target):
        text = f"--from {args.source} --to {args.target}: copy it into {OWN_ENGINE} first"
        raise ConfigError("config.conflict", text)
    table = config.store
    if not isinstance(table, SharedStore) or table.engine != engine:
        text = f'missing: -c takes a file with engine = "{engine}" and its settings'
        raise ConfigError("config.missing", text, key="store.engine")
    async with (
        _shared_source(config, table) if to_rocks else _source(args, terminal, config) as source,
        _target(config) if to_rocks else _shared_target(config, table) as target,
    ):
        total = 2 * await bytes_to_copy(source)
        with progress(terminal, "copying", total) as on_bytes:
            copied = await copy_store(source, target, final=args.final, on_bytes=on_bytes)
    terminal.rows([asdict(log) for log in copied], empty="the store holds no streams")
    terminal.message(
        "next: start the nodes on the target"
        if args.final
        else "next: stop the nodes, and run this again with --final"
    )


@asynccontextmanager
async def _source(
    args: argparse.Namespace, terminal: Terminal, config: "Config"
) -> "AsyncGenerator[RocksCopy]":
    """The store on RocksDB, or a copy of it where the node runs."""
    import msgspec

    from rillnode.actors.log.rocks.copy import RocksCopy
    from rillnode.node.config import StoreTable

    on_rocks = msgspec.structs.replace(config, store=StoreTable())
    async with AsyncExitStack() as stack:
        path = await stack.enter_async_context(resting_store(args, terminal, on_rocks))
        if args.final and path != config.store_dir:
            raise StoreError(
                "copy.running",
                f"a node runs on {config.store_dir}: stop it, then repeat this",
                retryable=False,
            )
        rocks = RocksCopy.source(path)
        stack.callback(rocks.close)
        yield rocks


@asynccontextmanager
async def _target(config: "Config") -> "AsyncGenerator[RocksCopy]":
    from rillnode.actors.log.rocks.copy import RocksCopy

    rocks = RocksCopy.target(config.store_dir)
    try:
        yield rocks
    finally:
        rocks.close()


@asynccontextmanager
async def _shared_source(config: "Config", table: "SharedStore") -> AsyncGenerator["SharedSource"]:
    """The shared store as it is now, in views of its own: nodes may go on."""
    from rillnode.actors.log.shared.copying import SharedSource

    views = config.data_dir / _VIEWS
    shutil.rmtree(views, ignore_errors=True)
    try:
        source = await SharedSource.open(partial(_shared, table, views), views)
        try:
            yield source
        finally:
            await source.close()
    finally:
        shutil.rmtree(views, ignore_errors=True)


@asynccontextmanager
async def _shared_target(config: "Config", table: "SharedStore") -> AsyncGenerator["SharedTarget"]:
    from rillnode.actors.log.shared.copying import SharedTarget

    # The node begins with these views.
    target = await SharedTarget.open(partial(_shared, table, config.views_dir, copying=True))
    try:
        yield target
    finally:
        await target.close()


def _shared(
    table: "SharedStore", views: Path, complete: "Complete", *, copying: bool = False
) -> "SharedLogStore":
    import asyncio

    import msgspec

    from rillnode.actors.core.threads import SYSTEM_THREADS
    from rillnode.node.stores import shared_store
    from rillnode.transports.clock import SystemClock

    return shared_store(
        # A copy is of all, whatever the node itself serves.
        msgspec.structs.replace(table.copied(), serve=()),
        views,
        entropy=os.urandom,
        now_ms=SystemClock(asyncio.get_running_loop()).now_ms,
        threads=SYSTEM_THREADS,
        complete=complete,
        on_health=lambda health: None,
        copying=copying,
    )
