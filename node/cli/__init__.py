"""The command line: `rillnode NOUN VERB`.

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 no node in reach, 4 the node could not go
on, 130 interrupted.
"""

import argparse
import asyncio
import inspect
import os
import sys
import traceback
from collections.abc import Coroutine, Sequence
from typing import Any, cast

from rillnode import __version__
from rillnode.codecs.errors import RillnodeError
from rillnode.node.cli import (
    backup,
    bench,
    completion,
    config,
    doctor,
    index,
    init,
    key,
    peer,
    restore,
    route,
    run,
    short,
    status,
    store,
    stream,
    top,
    verify,
)
from rillnode.node.cli.failures import Exit, exit_code, next_step
from rillnode.node.cli.parsing import Parser, UsageError
from rillnode.node.cli.terminal import Terminal, printable
from rillnode.node.config.kinds import Level
from rillnode.node.config.tables import LogTable
from rillnode.node.logs import configure_logs
from rillnode.node.nextgraph import cli as nextgraph
from rillnode.node.simulation import cli as sim
from rillnode.node.spark.cli import pipeline, sink
from rillnode.node.streamr import cli as apikey

_ABOUT = """rillnode: an actor-model node for event streams.

  rillnode init edge && rillnode run -c edge/node.toml
"""

_NOUNS = (
    init, run, status, top, stream, short, index, peer, route, sink, pipeline,
    key, apikey, nextgraph, config, backup, restore, verify, store,
    doctor, bench, sim, completion,
)  # fmt: skip
"""In the order of the help."""

_OTHERS_WRITE = 0o022


def build_parser() -> Parser:
    """The parser of every command."""
    parser = Parser(prog="rillnode", description=_ABOUT)
    parser.usage = "rillnode COMMAND ..."
    parser.add_argument("--version", action="version", version=f"rillnode {__version__}")
    commands = parser.add_commands(metavar="COMMAND", title="commands")
    for noun in _NOUNS:
        noun.add(commands)
    return parser


def main(argv: Sequence[str] | None = None, terminal: Terminal | None = None) -> int:
    """Carry out one command and return its exit code.

    Args:
        argv: arguments; those of the process by default.
        terminal: streams and environment; those of the process by default.
    """
    terminal = terminal or Terminal()
    try:
        args = build_parser().parse_args(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        return _misused(terminal, error)
    except SystemExit as done:  # --help, --version
        return Exit.OK if done.code is None else int(done.code)
    terminal.as_json, terminal.quiet = args.json, args.quiet
    # Whatever the shell says: nobody else may change what a command makes.
    os.umask(os.umask(_OTHERS_WRITE) | _OTHERS_WRITE)
    if args.verb is not run.run:
        level: Level = "debug" if args.verbose else "error" if args.quiet else "warning"
        configure_logs(LogTable(level=level, format="console"), terminal.err)
    try:
        return _carry_out(args, terminal)
    except UsageError as error:
        return _misused(terminal, error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has enough: `| head`
        _discard_output(terminal)
        return Exit.OK
    except Exception as error:
        return _failed(terminal, error, args)


def _carry_out(args: argparse.Namespace, terminal: Terminal) -> int:
    result = args.verb(args, terminal)
    if inspect.iscoroutine(result):
        result = asyncio.run(cast(Coroutine[Any, Any, int], result))
    terminal.flush()
    return cast(int, result)


def _misused(terminal: Terminal, error: UsageError) -> int:
    _report(terminal, str(error), f"`{error.command} --help`")
    return Exit.USAGE


def _failed(terminal: Terminal, error: Exception, args: argparse.Namespace) -> int:
    if args.verbose:
        terminal.error("".join(traceback.format_exception(error)))
    if isinstance(error, RillnodeError):
        _report(terminal, str(error), next_step(error, args.command))
        return exit_code(error, asks_node=args.asks_node)
    _report(terminal, f"unexpected {type(error).__name__}: {error}", f"`{args.command} -v`")
    return Exit.FAILED


def _report(terminal: Terminal, text: str, step: str) -> None:
    safe = "\n".join(map(printable, text.splitlines()))  # a node may have worded it
    terminal.error(f"rillnode: {safe}\n  next: {step}")


def _discard_output(terminal: Terminal) -> None:
    """Keep the interpreter from complaining about the closed pipe when it flushes at its end."""
    try:
        descriptor = terminal.out.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
