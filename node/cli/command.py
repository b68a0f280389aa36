"""Reads one command line and carries it out.

Modules of verbs import what verbs need in the functions that need it: a help text, a version and a
script for completion are made without any of it.
"""

import argparse
import inspect
import os
import sys
import traceback
from collections.abc import Coroutine, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from rillnode import __version__
from rillnode.codecs.errors import ConfigError, RillnodeError
from rillnode.codecs.next_steps import next_step
from rillnode.node.cli import (
    actor,
    apikey,
    backup,
    bench,
    completion,
    config,
    console,
    context,
    doctor,
    index,
    init,
    key,
    peer,
    queue,
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
from rillnode.node.cli.failures import Exit, exit_code
from rillnode.node.cli.parsing import Commands, Parser, Told, UsageError, add_verb
from rillnode.node.cli.terminal import OutputError, Terminal, printable
from rillnode.node.installed import (
    PLUG_INS,
    VERBS,
    install_command,
    installed,
    load,
    required,
    version_of,
)

if TYPE_CHECKING:
    from rillnode.node.config.kinds import Level

_ABOUT = """rillnode: an actor-model node for event streams.

  rillnode run --dev                                     a node to try out
  rillnode init edge && rillnode run -c edge/node.toml   a node to keep
"""

_NOUNS = (
    init, run, status, top, console, stream, short, index, queue, peer, route, actor,
    key, apikey, config, context, backup, restore, verify, store, doctor, bench,
    completion,
)  # fmt: skip
"""In the order of the help, before those of plug-ins."""

_WITHOUT_LOGS = (run.run, completion.completion)
"""The first configures its own; the other has nothing to log."""

_SYSTEM = "check the path, the disk, and that you may read and write there; -v shows more"
"""What to do about what the system refuses."""

_OF_ALL = ("-h", "--help", "--version")
"""Options without a command."""

_OF_ALL_COMMANDS = (*_OF_ALL, "completion")
"""What is about all commands."""

_OTHERS_WRITE = 0o022


class _Version(argparse.Action):
    """Says which version this is, and which plug-ins there are; looked up only if it is asked."""

    def __call__(self, *_: object) -> None:
        names = sorted(installed(PLUG_INS))
        lacking: dict[str, list[str]] = {}
        for name in names:
            missing = [package for package in required({name}) if version_of(package) is None]
            if missing:
                lacking[name] = missing
        lines = [
            f"rillnode {__version__}",
            "  python    {}.{}.{}".format(*sys.version_info[:3]),
            f"  plug-ins  {', '.join(name for name in names if name not in lacking)}",
        ]
        for name, packages in lacking.items():
            lines.append(f"  {name} needs {', '.join(packages)}: `{install_command(name)}`")
        raise Told("".join(f"{line}\n" for line in lines))


def build_parser(only: str = "") -> Parser:
    """The parser of every command.

    Args:
        only: a command without which all others can be left out. To add them takes 20 ms, and
            imports the commands of all plug-ins. Where it is none, nothing is left out.
    """
    parser = Parser(prog="rillnode", description=_ABOUT)
    parser.usage = "rillnode COMMAND ..."
    parser.add_argument("--version", action=_Version, nargs=0, help="show the installed versions")
    parser.set_defaults(root=parser)  # for who completes command lines
    commands = parser.add_commands(metavar="COMMAND", title="commands")
    for noun in _NOUNS:
        if not only or only in _names(noun):
            noun.add(commands)
    for name in installed(VERBS):
        if only in ("", name):
            _add_of_plug_in(commands, name)
    return build_parser() if only and only not in parser.commands else parser


def _names(noun: ModuleType) -> tuple[str, ...]:
    """The commands that a module adds."""
    return ("pub", "sub") if noun is short else (noun.__name__.rpartition(".")[2],)


def _add_of_plug_in(commands: Commands, name: str) -> None:
    """Add what a package has named; one that is broken stops no other command."""
    try:
        load(VERBS, name)(commands)
    except ConfigError as error:
        broken = error  # the name of an exception ends with its clause

        def refuse(_: argparse.Namespace, __: Terminal) -> int:
            raise broken

        add_verb(
            commands, name, refuse,
            summary="cannot be loaded: run it to see why",
            text=error.text,
            examples=[f"rillnode {name}"],
        )  # fmt: skip


def carry_out(argv: Sequence[str] | None, terminal: Terminal | None) -> int:
    """Carry out one command and return its exit code; see `main`."""
    terminal = terminal or Terminal()
    argv = sys.argv[1:] if argv is None else argv
    try:
        if argv and argv[0].startswith("-") and argv[0] not in _OF_ALL:
            text = f"unrecognized arguments: {argv[0]}; options follow the command"
            raise UsageError("rillnode", text)
        only = argv[0] if argv and argv[0] not in _OF_ALL_COMMANDS else ""
        args = build_parser(only).parse_args(argv)
    except UsageError as error:
        return _misused(terminal, error)
    except ConfigError as error:  # of the plug-ins that are installed
        _report(terminal, str(error), next_step(error, "rillnode"))
        return Exit.USAGE
    except Told as told:  # --help, --version
        args = argparse.Namespace(
            verb=told, command="rillnode",
            json=False, quiet=False, verbose=False, asks_node=False,
        )  # fmt: skip
    terminal.as_json, terminal.quiet = args.json, args.quiet
    # Whatever the shell says: nobody else may change what a command makes.
    os.umask(os.umask(_OTHERS_WRITE) | _OTHERS_WRITE)
    if args.verb not in _WITHOUT_LOGS and not isinstance(args.verb, Told):
        from rillnode.node.config.tables import LogTable
        from rillnode.node.logs import configure_logs

        level: Level = "debug" if args.verbose else "error" if args.quiet else "warning"
        configure_logs(LogTable(level=level, format="console"), terminal.err)
    try:
        return _carry_out(args, terminal)
    except UsageError as error:
        return _misused(terminal, error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except OutputError as error:
        _discard_output(terminal)
        return _failed(terminal, error, args)
    except BrokenPipeError:  # the reader of stdout has enough: `| head`
        _discard_output(terminal)
        return Exit.OK
    except Exception as error:
        return _failed(terminal, error, args)


def _carry_out(args: argparse.Namespace, terminal: Terminal) -> int:
    result = args.verb(args, terminal)
    if inspect.iscoroutine(result):
        import asyncio

        result = asyncio.run(cast(Coroutine[Any, Any, int | None], result))
    terminal.flush()
    return cast(int | None, result) or Exit.OK


def _misused(terminal: Terminal, error: UsageError) -> int:
    _report(terminal, str(error), f"`{error.command} --help`")
    return Exit.USAGE


def _failed(terminal: Terminal, error: Exception, args: argparse.Namespace) -> int:
    if args.verbose:
        terminal.error("".join(traceback.format_exception(error)))
    if isinstance(error, RillnodeError):
        _report(terminal, str(error), next_step(error, args.command))
        return exit_code(error, asks_node=args.asks_node)
    if isinstance(error, OSError) and error.filename is not None:
        _report(terminal, f"{error.filename}: {error.strerror}", _SYSTEM)
        return Exit.FAILED
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
