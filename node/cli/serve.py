"""`rillnode route serve`: lets a program answer messages to an address of a node."""

import argparse
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.message import added
from rillnode.node.cli.parsing import (
    Commands,
    Parser,
    UsageError,
    add_verb,
    positive_number,
    seconds,
)
from rillnode.node.cli.terminal import Terminal
from rillnode.node.installed import SERVING

if TYPE_CHECKING:
    from rillnode.actors.apps.messages import Message
    from rillnode.node.client import Client, Handler

_CALLS_MAX: Final = 4
_LEASE_SECONDS: Final = 10.0

Begin = Callable[..., Awaitable[AbstractAsyncContextManager[Any]]]
"""Begins to serve, of a client, a handler, and the limits that `Client.serve` takes by name."""

Place = Callable[[Parser], Callable[[argparse.Namespace], Begin | None]]
"""Adds its options to `route serve`, and gives what looks whether they were used."""


def add_serve(verbs: Commands) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "serve", serve,
        summary="let a program answer messages to an address",
        usage="ADDRESS [options] -- PROGRAM [ARGUMENT ...]",
        text="The program runs once for each message: its stdin is the payload, its output the\n"
        "answer. If it fails, the asker gets `program.failed`. RILLNODE_PRINCIPAL says who\n"
        "asks. Serving survives lost links, until Ctrl-C or SIGTERM; then open messages are still\n"
        "answered. At an Ockam hub the address is an alias, `forward_to_ADDRESS`, or for `-` one\n"
        "chosen by the hub; askers there get no answer if the program fails.",
        examples=[
            "rillnode route serve upper -- tr a-z A-Z",
            "rillnode route serve printer --group --calls-max 1 -- lp",
            "rillnode route serve printer --hub peer/hub -- lp",
        ],
    )  # fmt: skip
    parser.add_argument("address", metavar="ADDRESS", help="what others send to")
    parser.add_argument(
        "program", nargs="+", metavar="PROGRAM", help="the program to run, with its arguments"
    )
    parser.add_argument(
        "--group",
        action="store_true",
        help="let others serve it too; each message goes to one of them",
    )
    parser.add_argument(
        "--calls-max", type=positive_number, default=_CALLS_MAX, metavar="N",
        help=f"programs at a time (default: {_CALLS_MAX})",
    )  # fmt: skip
    parser.add_argument(
        "--lease", type=seconds, default=_LEASE_SECONDS, metavar="SECONDS",
        help="how long the address is kept if the link is lost "
        f"(default: {_LEASE_SECONDS:g})",
    )  # fmt: skip
    parser.set_defaults(places=[place(parser) for place in added(SERVING)])
    add_connection_options(parser)


async def serve(args: argparse.Namespace, terminal: Terminal) -> None:
    """Serve until an interrupt."""
    import asyncio

    program: Sequence[str] = args.program
    if shutil.which(program[0]) is None:
        raise UsageError(args.command, f"there is no program {program[0]!r}")
    async with (
        connected(args, terminal) as client,
        await _begun(client, args, _running(program)) as service,
    ):
        loop, stopping = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        # As a service manager ends it: the address is free at once, and not when the lease is over.
        loop.add_signal_handler(
            signal.SIGTERM, lambda: stopping.add(loop.create_task(service.stop()))
        )
        terminal.message(f"serving {service.address}; Ctrl-C ends it")
        await service.wait()


async def _begun(
    client: "Client", args: argparse.Namespace, handler: "Handler"
) -> AbstractAsyncContextManager[Any]:
    """What serves, at the node or where the options of a plug-in say."""
    limits: dict[str, Any] = {"calls_max": args.calls_max, "lease_seconds": args.lease}
    for chosen in args.places:
        if (begin := chosen(args)) is not None:
            service: AbstractAsyncContextManager[Any] = await begin(client, handler, **limits)
            return service
    return await client.serve(args.address, handler, group=args.group, **limits)


def _running(program: Sequence[str]) -> "Callable[[Message], Coroutine[Any, Any, bytes]]":
    """What answers with what a program prints."""
    import asyncio

    from rillnode.actors.apps.messages import ActorReply

    async def run(message: "Message") -> bytes:
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "RILLNODE_PRINCIPAL": message.principal},
            process_group=0,  # an interrupt of this command is none of what it still has to answer
        )
        try:
            printed, _ = await process.communicate(message.payload)
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise ActorReply("program.failed", f"the program has ended with {process.returncode}")
        return printed

    return run
