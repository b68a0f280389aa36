"""`rillnode run`: a node in the foreground."""

import argparse
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rillnode import __version__
from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.node.cli import process
from rillnode.node.cli.config import add_config_options
from rillnode.node.cli.connection import config_file
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_verb
from rillnode.node.cli.terminal import Terminal
from rillnode.node.cli.trial import Trial, trial, with_free_ports

if TYPE_CHECKING:
    import asyncio

    from rillnode.node.config import Config, LogTable
    from rillnode.node.contexts import DevNode
    from rillnode.node.runtime import Node

logger = event_logger("rillnode.node.cli.run")

FAILED_SECONDS_MAX: Final = 10.0
"""How long a node that has failed may take to end: half of it drains, the rest closes."""


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "run", run,
        summary="run a node in the foreground",
        text="SIGTERM or Ctrl-C drains the node: what was confirmed is kept, and the exit code is\n"
        "0. A second signal ends it at once. SIGHUP reads the configuration again: grants, API\n"
        "keys, quotas, streams and log levels change at once, the log names what needs a restart.\n"
        "\n"
        "When an essential actor has failed too often, the node drains for 5 seconds at most\n"
        "and ends with exit code 4: start it again. With `on_fatal = \"stay\"` it goes on without\n"
        "that actor, and /readyz answers 503.\n"
        "\n"
        "With --dev and without a configuration, the node is for trying things out: it has every\n"
        "listener whose packages are installed, at its usual port or a free one, and keeps its\n"
        "data in a temporary directory that is removed at the end, unless --data-dir names one.\n"
        "Other verbs and `rillnode.connect()` find it without options.",
        examples=[
            "rillnode run",
            "rillnode run --dev",
            "rillnode run -c edge/node.toml --set noise.listen=127.0.0.1:0",
        ],
    )  # fmt: skip
    add_config_options(parser)
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="keep data here, in place of the configured directory",
    )
    parser.add_argument(
        "--dev", action="store_true",
        help="everybody may do everything; loopback addresses only",
    )  # fmt: skip
    parser.add_argument(
        "--trace", metavar="LISTENERS",
        help="write a line for each message of these listeners, such as noise,ockam: its kind "
        "and size, never its contents",
    )  # fmt: skip
    parser.add_argument(
        "--loop", choices=("asyncio", "uvloop"),
        help="run on this event loop; default: uvloop, if installed",
    )  # fmt: skip
    parser.add_argument(
        "--ports-file", type=Path, metavar="FILE",
        help="write the bound addresses and the identity here, as JSON, once all listen",
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> None:
    """Run a node until a signal comes, or it cannot go on.

    Raises:
        NodeFailed: it could not go on.
    """
    with _signals_kept() as kept, _prepared(args) as tried:
        _run(args, terminal, tried, kept)


@contextmanager
def _signals_kept() -> Generator[set[int]]:
    """Keep signals that come before the loop takes them: they would end the process at once."""
    kept: set[int] = set()
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda come, _: kept.add(come)) for number in numbers}
    try:
        yield kept
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _prepared(args: argparse.Namespace) -> Generator[Trial | None]:
    """Make what a node for a try needs, where one is asked for, and remove it afterwards.

    Raises:
        ConfigError: there is no room for its data.
    """
    if not args.dev or config_file(args.config) is not None:
        yield None
        return
    tried = trial()
    if args.data_dir is not None:
        yield tried
        return
    try:
        directory = tempfile.mkdtemp(prefix="rillnode-dev-")
    except OSError as error:
        raise ConfigError("config.dev", f"no temporary directory: {error.strerror}") from None
    args.data_dir = Path(directory)
    try:
        yield tried
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(args: argparse.Namespace, terminal: Terminal, tried: Trial | None, kept: set[int]) -> None:
    import asyncio

    from rillnode.node.logs import configure_logs

    config = _configuration(args, terminal, tried)
    configure_logs(_log_table(config, args), terminal.err)
    for text in tried.left_out if tried is not None else ():
        terminal.message(f"left out: {text}")
    if args.ports_file is not None:
        _remove(args.ports_file)  # nobody shall take an earlier run's for this one's
    process.prepare()
    ended = threading.Event()
    try:
        with asyncio.Runner(loop_factory=process.loop_factory(args.loop)) as runner:
            runner.run(_serve(config, args, terminal, ended, tried, kept))
    except TransportError as error:
        for name, table in config.listeners().items():
            if str(table.address) == error.context.get("address"):
                raise TransportError(error.code, f"{name}.listen: {error.text}") from error
        raise
    finally:
        ended.set()


async def reload_when(
    asked: "asyncio.Event", node: "Node", args: argparse.Namespace, terminal: Terminal
) -> None:
    """Reload whenever it is asked for, one time after the other, until cancelled."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            await _reload(node, args, terminal)
        except Exception:  # it is logged, and the next one may do
            logger.exception("config_not_reloaded")


async def _reload(node: "Node", args: argparse.Namespace, terminal: Terminal) -> None:
    """Read the configuration again and let what can be changed take effect.

    A configuration that cannot be changes nothing; the log says why.
    """
    import asyncio

    from rillnode.node.logs import configure_logs

    try:
        # Thousands of grants take a quarter of a second to be read: the node goes on meanwhile.
        config = await asyncio.to_thread(_configuration, args, terminal)
        node.take_over(config)
    except ConfigError as error:
        logger.error("config_not_reloaded", extra={"code": error.code, "reason": error.text})
        return
    configure_logs(_log_table(config, args), terminal.err)


def _log_table(config: "Config", args: argparse.Namespace) -> "LogTable":
    from msgspec.structs import replace

    return replace(config.log, level="debug") if args.verbose else config.log


def _configuration(
    args: argparse.Namespace, terminal: Terminal, tried: Trial | None = None
) -> "Config":
    """What to run with.

    Raises:
        ConfigError: no configuration, or one that cannot be run.
    """
    from rillnode.node.config import for_process, load_config

    file = config_file(args.config)
    overrides: list[str] = list(args.overrides)
    if args.data_dir is not None:
        overrides.append(f"data_dir={args.data_dir.absolute()}")
    if args.trace is not None:
        overrides.append(f"log.trace={json.dumps(args.trace.split(','))}")
    if file is None:
        if not args.dev:
            text = "there is no node.toml here, and no -c FILE was given"
            raise ConfigError("config.none", text)
        overrides.insert(0, "name=dev")
    config = for_process(load_config(file, overrides, terminal.environ))
    if tried is not None:
        config = with_free_ports(tried.having(config))
    return _opened(config) if args.dev else config


def _opened(config: "Config") -> "Config":
    """The configuration with everything granted to everybody who can reach the node.

    Nobody gains by an admin session of its page what he could not do without.
    """
    from msgspec.structs import replace

    from rillnode.node.config import GrantTable

    for name, table in config.listeners().items():
        if not table.address.loopback:
            text = f"{name}.listen: {table.listen} is not loopback, as --dev demands"
            raise ConfigError("config.dev", text)
    everybody = GrantTable(who="*", streams="*", addresses="*", may=("admin",))
    tables = [table.for_everybody() for table in config.tables]
    http = replace(config.http, console=True)
    return replace(config, http=http, grants=(*config.grants, everybody), tables=tables)


async def _serve(
    config: "Config",
    args: argparse.Namespace,
    terminal: Terminal,
    ended: threading.Event,
    tried: Trial | None,
    kept: set[int],
) -> None:
    import asyncio

    stopping, asked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number, stopping)
    loop.add_signal_handler(signal.SIGHUP, asked.set)
    if signal.SIGTERM in kept:
        return
    if signal.SIGHUP in kept:
        asked.set()

    # Everything that a node is made of takes long to import, and no other verb needs it.
    from rillnode.actors.core.threads import SYSTEM_THREADS
    from rillnode.node.contexts import remove_dev_node, write_dev_node
    from rillnode.node.runtime import Node

    async with AsyncExitStack() as stack:
        node: Node | None = None
        while node is None:
            try:
                node = await stack.enter_async_context(Node(config, commit_on_loop=True))
            except TransportError:
                # A node for a try goes on where another one has just taken a port that was free.
                if tried is None or (moved := with_free_ports(config)) == config:
                    raise
                config = moved
        process.freeze()
        found = args.dev and write_dev_node(terminal.environ, _dev_node(node))
        # A node for a try has no configuration that could be read again.
        again = reload_when(asked, node, args, terminal) if tried is None else asked.wait()
        reloading = loop.create_task(again)
        resting = loop.create_task(
            process.rest_when_idle(lambda: node.observed.totals().entries, node.rest)
        )
        try:
            if args.ports_file is not None:
                _write_ports(args.ports_file, node)
            _show_banner(node, terminal, dev=args.dev, found=found)
            await stopping.wait()
        except asyncio.CancelledError:
            # The node has failed, and so may what it ends with.
            SYSTEM_THREADS.start(lambda: _end_late(ended), "end")
            if args.ports_file is not None:
                with suppress(ConfigError):  # why the node ends is what matters
                    _remove(args.ports_file)
            raise
        finally:
            reloading.cancel()
            resting.cancel()
            if found:
                remove_dev_node(terminal.environ)
        if terminal.err.isatty():  # elsewhere, stderr has log lines only
            terminal.message("draining; a second signal ends the node at once")
        if args.ports_file is not None:
            _remove(args.ports_file)


def _end_late(ended: threading.Event) -> None:
    """End the process where the node has not ended in its time."""
    if not ended.wait(FAILED_SECONDS_MAX):
        logger.critical("stop_cut_short")
        os._exit(Exit.NODE_FAILED)


def on_signal(number: int, stopping: "asyncio.Event") -> None:
    """The first signal asks the node to drain, the second ends the process."""
    if stopping.is_set():
        os._exit(128 + number)
    stopping.set()


def _show_banner(node: "Node", terminal: Terminal, *, dev: bool, found: bool) -> None:
    if terminal.quiet:
        return
    with suppress(BrokenPipeError):  # nobody reads it, which is no reason to stop
        if terminal.as_json:
            terminal.document(_ports(node))
        else:
            terminal.write_text(_banner(node, dev=dev) + (_to_try(node) if found else ""))
        terminal.flush()


_TRIED: Final = "quakes"

_TRY: Final = f"""
try it, in another terminal:
  echo '{{"mag": 4.2}}' | rillnode pub {_TRIED} --create
  rillnode sub {_TRIED} --from start
  python -c 'import rillnode; print(rillnode.connect_blocking().stream("{_TRIED}").pull())'
"""


def _to_try(node: "Node") -> str:
    """Commands to copy, which find the node by themselves."""
    return _TRY + "".join(f"  {command}\n" for command in node.to_try(_TRIED))


def _dev_node(node: "Node") -> "DevNode":
    from rillnode.node.contexts import DevNode

    url = f"noise://{node.addresses()['noise']}"
    return DevNode(url=url, node_identity=node.identity, pid=os.getpid())


def _banner(node: "Node", *, dev: bool) -> str:
    lines = [f"rillnode {__version__}: {node.config.name}", f"  identity  {node.identity}"]
    addresses = node.addresses()
    for name, address in addresses.items():
        scheme = "https" if node.config.http.tls_cert else "http"
        lines.append(f"  {name:<9} {f'{scheme}://{address}/' if name == 'http' else address}")
    lines.append(f"  data      {node.config.data_dir}")
    if said := node.config.store.banner:
        lines.append(f"  store     {said}")
    if dev:
        lines.append("  --dev: EVERYBODY who reaches this node may do everything")
    return "".join(f"{line}\n" for line in lines)


def _ports(node: "Node") -> dict[str, str]:
    return {**node.addresses(), "identity": node.identity, **node.facts}


def _write_ports(path: Path, node: "Node") -> None:
    """Write the file whole, or not at all: readers poll for it."""
    from rillnode.actors.log.directories import replace_file

    try:
        replace_file(path, f"{json.dumps(_ports(node))}\n".encode())
    except OSError as error:
        text = f"{path}: cannot be written: {error.strerror}"
        raise ConfigError("config.ports_file", text) from None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        text = f"{path}: cannot be removed: {error.strerror}"
        raise ConfigError("config.ports_file", text) from None
