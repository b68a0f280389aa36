"""`rillnode route`: which nodes a route leads through, and how far each is."""

import argparse
from typing import Any, Final

from rillnode.codecs.errors import ActorError, RequestError
from rillnode.codecs.ockam.routing import LOCAL, Address, Route, format_route
from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.message import route_argument
from rillnode.node.cli.parsing import Commands, add_noun, add_verb, seconds
from rillnode.node.cli.terminal import Terminal
from rillnode.node.client.round_trip import ECHO, round_trip

_WAIT_SECONDS: Final = 5.0


def add(commands: Commands) -> None:
    """Add the noun and its verb."""
    verbs = add_noun(commands, "route", "routes through several nodes: probe")
    parser = add_verb(
        verbs, "probe", probe,
        summary="ask each node along a route, and show how long its answer took",
        usage="ROUTE [options]",
        text="A route is written as for `message send`. Its nodes are asked one by one, through\n"
        "those before; the first that does not answer ends it. Of workers only `echo` is asked:\n"
        "nobody knows what a message does to another.",
        examples=[
            "rillnode route probe 'peer/core;peer/edge-2;echo'",
            "rillnode route probe 'peer/core;peer/edge-2' --wait 1 | jq -r .milliseconds",
        ],
    )  # fmt: skip
    parser.add_argument("route", type=route_argument, metavar="ROUTE", help="what is probed")
    parser.add_argument(
        "--wait", type=seconds, default=_WAIT_SECONDS, metavar="SECONDS",
        help=f"how long to wait for each answer (default: {_WAIT_SECONDS:g})",
    )  # fmt: skip
    add_connection_options(parser)


async def probe(args: argparse.Namespace, terminal: Terminal) -> int:
    """Probe a route."""
    route: Route = args.route
    rows: list[dict[str, Any]] = []
    failed: RequestError | ActorError | None = None
    async with connected(args, terminal) as client:
        for nth, address in enumerate(route):
            hop = format_route((address,))
            row: dict[str, Any] = {"hop": nth + 1, "address": hop, "milliseconds": None}
            rows.append(row)
            if failed is not None:
                row["state"] = "not reached"
            elif not (_is_node(address) or address == ECHO):
                row["state"] = "a worker: not asked"
            else:
                try:
                    took = await round_trip(client.ask, route[: nth + 1], args.wait)
                except (RequestError, ActorError) as error:
                    failed = error
                    row["state"] = f"{error.code}: {error.text}"
                else:
                    row["milliseconds"], row["state"] = round(1_000 * took, 3), "answers"
    terminal.rows(rows, empty="")
    return Exit.OK if failed is None else Exit.UNREACHABLE


def _is_node(address: Address) -> bool:
    """Whether a hop leads to another node, as its form tells."""
    return address.type != LOCAL or address.value.startswith(b"peer/")
