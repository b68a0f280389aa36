"""`rillnode store`: moves all that a node holds from one engine to the other, and back."""

import argparse
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import msgspec

from rillnode.actors.storage.copying import Source, Target, bytes_to_copy, copy_store
from rillnode.actors.storage.rocks_copy import RocksCopy
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_noun, add_verb
from rillnode.node.cli.progress import progress
from rillnode.node.cli.resting import add_resting_options, configured, resting_store
from rillnode.node.cli.terminal import Terminal
from rillnode.node.config import Config, StoreTable
from rillnode.node.stores import jetstream_options

if TYPE_CHECKING:
    from rillnode.actors.storage.jetstream.copying import JetStreamCopy

_ENGINES: Final = ("rocksdb", "jetstream")


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "store", "move a node's store to another engine")
    parser = add_verb(
        verbs, "copy", copy,
        summary="copy a node's store into another engine, and compare the two",
        usage="--from ENGINE --to ENGINE -c FILE [options]",
        text="FILE has [store] for JetStream; the store on RocksDB is that of its data_dir. The\n"
        "source stays as it is. Run it while the node runs, as often as you like: what was cut\n"
        "off is gone on with, and each run copies only what is new. Then stop the nodes and run\n"
        "it with --final, which takes as long as what came since the run before. No node starts\n"
        "on the target before that. Every partition is read back and compared.",
        examples=[
            "rillnode store copy --from rocksdb --to jetstream -c edge/three.toml",
            "rillnode store copy --from rocksdb --to jetstream -c edge/three.toml --final",
        ],
    )  # fmt: skip
    for option, target, what in (("from", "source", "from"), ("to", "target", "into")):
        parser.add_argument(
            f"--{option}", dest=target, choices=_ENGINES, required=True, metavar="ENGINE",
            help=f"what is copied {what}: rocksdb or jetstream",
        )  # fmt: skip
    parser.add_argument(
        "--final", action="store_true", help="the nodes are stopped: let them start on the target"
    )
    add_resting_options(parser)


async def copy(args: argparse.Namespace, terminal: Terminal) -> int:
    """Copy a store."""
    config, _ = configured(args, terminal)
    if args.source == args.target:
        text = f"--from and --to both name {args.source}"
        raise ConfigError("config.conflict", text)
    if config.store.engine != "jetstream":
        text = 'missing: -c takes a file with engine = "jetstream" and its servers'
        raise ConfigError("config.missing", text, key="store.engine")
    to_rocks = args.target == "rocksdb"
    async with (
        _jetstream(config, is_source=to_rocks) as jetstream,
        _target(config) if to_rocks else _source(args, terminal, config) as rocks,
    ):
        source: Source = jetstream if to_rocks else rocks
        target: Target = rocks if to_rocks else jetstream
        total = 2 * await bytes_to_copy(source)
        with progress(terminal, "copying", total) as on_bytes:
            copied = await copy_store(source, target, final=args.final, on_bytes=on_bytes)
    terminal.rows([asdict(log) for log in copied], empty="the store holds no streams")
    terminal.message(
        "next: start the nodes on the target"
        if args.final
        else "next: stop the nodes, and run this again with --final"
    )
    return Exit.OK


@asynccontextmanager
async def _source(
    args: argparse.Namespace, terminal: Terminal, config: Config
) -> AsyncGenerator[RocksCopy]:
    """The store on RocksDB, or a copy of it where the node runs."""
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
async def _target(config: Config) -> AsyncGenerator[RocksCopy]:
    rocks = RocksCopy.target(config.store_dir)
    try:
        yield rocks
    finally:
        rocks.close()


@asynccontextmanager
async def _jetstream(config: Config, *, is_source: bool) -> AsyncGenerator["JetStreamCopy"]:
    options = jetstream_options(config.store)
    # Here, because most nodes do not have the extra.
    from rillnode.actors.storage.jetstream.copying import JetStreamCopy

    opened = await (JetStreamCopy.source if is_source else JetStreamCopy.target)(options)
    try:
        yield opened
    finally:
        await opened.close()
