"""`rillnode route`: messages along a route, and how far each of its nodes is."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from rillnode.node.cli.actor import add_ls
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.message import add_verbs, route_argument
from rillnode.node.cli.parsing import Commands, add_noun, add_verb, seconds
from rillnode.node.cli.serve import add_serve
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.codecs.routing.routes import Address, Route
    from rillnode.node.client.round_trip import Hop

_WAIT_SECONDS: Final = 5.0


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(
        commands,
        "route",
        "messages along routes, through several nodes: ask, send, serve, ls, probe",
    )
    add_verbs(verbs)
    add_serve(verbs)
    add_ls(verbs, "route")
    parser = add_verb(
        verbs, "probe", probe,
        summary="ask each node along a route, and show how long its answer took",
        text="A route is written as for `route ask`. Its nodes are asked one by one, through\n"
        "those before; the first that does not answer ends it. Only the worker `echo` is\n"
        "asked, as a message might have effects on others.",
        examples=[
            "rillnode route probe 'peer/core;peer/edge-2;echo'",
            "rillnode route probe 'peer/core;peer/edge-2' --wait 1 | jq -r .milliseconds",
        ],
    )  # fmt: skip
    parser.add_argument("route", type=route_argument, metavar="ROUTE", help="the route to probe")
    parser.add_argument(
        "--wait", type=seconds, default=_WAIT_SECONDS, metavar="SECONDS",
        help=f"how long to wait for each answer (default: {_WAIT_SECONDS:g})",
    )  # fmt: skip
    add_connection_options(parser)


async def probe(args: argparse.Namespace, terminal: Terminal) -> int:
    """Probe a route."""
    from rillnode.node.client.round_trip import round_trips

    route: Route = args.route
    rows: list[dict[str, Any]] = []
    failed = False
    async with connected(args, terminal) as client:
        async for hop in round_trips(client.ask, route, args.wait):
            rows.append(_row(len(rows) + 1, hop.address, _state(hop), hop.seconds))
            failed = hop.failure is not None
    for address in route[len(rows) :]:
        rows.append(_row(len(rows) + 1, address, "not reached"))
    terminal.rows(rows, empty="")
    return Exit.UNREACHABLE if failed else Exit.OK


def _state(hop: "Hop") -> str:
    if hop.failure is not None:
        return f"{hop.failure.code}: {hop.failure.text}"
    return "a worker: not asked" if hop.seconds is None else "answers"


def _row(nth: int, address: "Address", state: str, seconds: float | None = None) -> dict[str, Any]:
    from rillnode.codecs.routing.routes import format_route

    milliseconds = None if seconds is None else round(1_000 * seconds, 3)
    hop = format_route((address,))
    return {"hop": nth, "address": hop, "milliseconds": milliseconds, "state": state}
