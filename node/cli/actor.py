"""`rillnode actor`: what has a route on a node: list, show and stop."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from rillnode.node.cli.connection import add_connection_options, connected
from rillnode.node.cli.message import route_argument
from rillnode.node.cli.parsing import Commands, add_noun, add_verb, positive_number
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.client.lookup import About

_SHOWN: Final = 1_000

_KINDS: Final = (
    "stream", "index", "queue", "subscription", "link", "peer", "sink", "actor", "served", "alias",
    "channel", "service",
)  # fmt: skip


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "actor", "actors and everything else with a route: ls, show, stop")
    add_ls(verbs, "actor")

    parser = add_verb(
        verbs, "show", show,
        summary="show what is at the end of a route",
        text="Figures of failures, restarts and the slowest turn are those of all actors of its\n"
        "class. Looking wakes nothing.",
        examples=["rillnode actor show greeter", "rillnode actor show 'peer/core;ST_S_0_sensors'"],
    )  # fmt: skip
    parser.add_argument("route", type=route_argument, metavar="ROUTE", help="route to show")
    add_connection_options(parser)

    parser = add_verb(
        verbs, "stop", stop,
        summary="stop what is at the end of a route",
        text="A link is closed; a subscription ends and its subscriber is told; an application's\n"
        "actor first handles its waiting messages; a stream's actor comes back with the next\n"
        "message. You need `admin`, or must own it.",
        examples=["rillnode actor stop greeter", "rillnode actor stop NX_H_e35e92470b5994ba"],
    )  # fmt: skip
    parser.add_argument("route", type=route_argument, metavar="ROUTE", help="route to stop")
    add_connection_options(parser)


def add_ls(verbs: Commands, noun: str) -> None:
    """Add the list, which is of routes as well as of what is at their ends."""
    parser = add_verb(
        verbs, "ls", ls,
        summary="list what has a route: streams, links, subscriptions, actors, ...",
        text="Without a grant of `admin` these are your own, those that your grants name, and\n"
        "those that you may send to. A pattern is one of addresses, or of names.",
        examples=[
            f"rillnode {noun} ls",
            f"rillnode {noun} ls 'site/*' --kind actor",
            f"rillnode {noun} ls --at peer/core --json | jq -r .route",
        ],
    )  # fmt: skip
    parser.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN",
        help="which: `*` for any characters, `?` for one (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--kind", choices=_KINDS, default="", metavar="KIND", help=f"only: {', '.join(_KINDS)}"
    )
    parser.add_argument(
        "--at", type=route_argument, default=(), metavar="ROUTE", help="of another node, behind it"
    )
    parser.add_argument(
        "--limit", type=positive_number, default=_SHOWN, metavar="N",
        help=f"so many at most (default: {_SHOWN:,})",
    )  # fmt: skip
    add_connection_options(parser)


async def ls(args: argparse.Namespace, terminal: Terminal) -> None:
    """List routes."""
    rows: list[dict[str, Any]] = []
    more = False
    async with connected(args, terminal) as client:
        async for about in client.routes(args.pattern, kind=args.kind, at=args.at):
            more = len(rows) == args.limit
            if more:
                break
            rows.append(_row(about))
    terminal.rows(rows, empty="nothing has such a route, or none that your key may know of")
    if more:
        terminal.message(f"these are the first {args.limit:,}: --limit shows more")


async def show(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show one."""
    from rillnode.node.entry_lines import iso_time

    async with connected(args, terminal) as client:
        about = await client.about(args.route)
    terminal.record(
        {
            **_row(about),
            "class": about.actor_class,
            "parent": about.parent,
            "since": None if about.since is None else iso_time(about.since),
            "handled": about.handled,
            "failures": about.failures,
            "slowest_seconds": about.slowest_seconds,
            "stoppable": about.stoppable,
        }
    )


async def stop(args: argparse.Namespace, terminal: Terminal) -> None:
    """Stop one."""
    async with connected(args, terminal) as client:
        about = await client.about(args.route)
        await client.stop(args.route)
    terminal.record({"route": about.route, "kind": about.kind, "stopped": True})


def _row(about: "About") -> dict[str, Any]:
    return {
        "route": about.route,
        "kind": about.kind,
        "name": about.name,
        "state": about.state,
        "mailbox": about.mailbox,
        "restarts": about.restarts,
        "owner": about.owner,
    }
