"""`rillnode route serve`: lets a program answer messages to an address of a node."""

import argparse
import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from rillnode.actors.apps.messages import ActorReply, Message
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.message import route_argument
from rillnode.node.cli.parsing import Commands, UsageError, add_verb, positive_number, seconds
from rillnode.node.cli.terminal import Terminal
from rillnode.node.client import Client, Handler
from rillnode.node.client.serving import LEASE_SECONDS

_CALLS_MAX: Final = 4


def add_serve(verbs: Commands) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs, "serve", serve,
        summary="let a program answer messages to an address",
        usage="ADDRESS [options] -- PROGRAM [ARGUMENT ...]",
        text="The program is run for each message: its stdin is the payload, what it prints the\n"
        "answer. If it fails, the asker is told `program.failed`. RILLNODE_PRINCIPAL says\n"
        "who asks. It goes on over lost links until Ctrl-C or SIGTERM, and then answers what it\n"
        "has. At an Ockam hub the address is an alias, `forward_to_ADDRESS`, or for `-` one that\n"
        "the hub makes up; whoever asks there is told nothing where the program fails.",
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
        "--group", action="store_true", help="others may serve it too: each message goes to one"
    )
    parser.add_argument(
        "--calls-max", type=positive_number, default=_CALLS_MAX, metavar="N",
        help=f"programs at a time (default: {_CALLS_MAX})",
    )  # fmt: skip
    parser.add_argument(
        "--lease", type=seconds, default=LEASE_SECONDS, metavar="SECONDS",
        help="how long the address is kept while the link is lost "
        f"(default: {LEASE_SECONDS:g})",
    )  # fmt: skip
    parser.add_argument(
        "--hub", type=route_argument, metavar="ROUTE",
        help="have an alias at the Ockam hub there, in place of an address of the node",
    )  # fmt: skip
    add_connection_options(parser)


async def serve(args: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until an interrupt."""
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
    return Exit.OK


async def _begun(
    client: Client, args: argparse.Namespace, handler: Handler
) -> AbstractAsyncContextManager[Any]:
    """What serves, at the node or at a hub."""
    limits: dict[str, Any] = {"calls_max": args.calls_max, "lease_seconds": args.lease}
    if args.hub is None:
        return await client.serve(args.address, handler, group=args.group, **limits)
    if args.group:
        raise UsageError(args.command, "argument --group: a hub's alias leads to one")
    name = None if args.address == "-" else args.address
    return await client.hub(args.hub).serve(name, handler, **limits)


def _running(program: Sequence[str]) -> Callable[[Message], Coroutine[Any, Any, bytes]]:
    """What answers with what a program prints."""

    async def run(message: Message) -> bytes:
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
