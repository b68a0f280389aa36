"""`rillnode console`: a link to an admin session on the node's page."""

import argparse
from typing import TYPE_CHECKING

from rillnode.node.cli.connection import add_connection_options, connected, find_target
from rillnode.node.cli.parsing import Commands, UsageError, add_verb
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.client import ConsoleTicket


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "console", console,
        summary="print a link to an admin session on the node's page",
        text="The link can be used once, within two minutes; the session lasts an hour. The page\n"
        "acts with the rights of your key, which must be granted `admin` on some stream. The\n"
        "node needs `console = true` in [http].",
        examples=["rillnode console --open", "rillnode console --at https://edge.example.org:8080"],
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open it in this machine's browser")
    parser.add_argument(
        "--at",
        metavar="URL",
        help="the page's address, if you reach it by another than the node's own",
    )
    add_connection_options(parser)


async def console(args: argparse.Namespace, terminal: Terminal) -> None:
    """Ask for a ticket, and show where it leads."""
    dialled = find_target(args, terminal).url
    if args.at is not None and not args.at.startswith(("http://", "https://")):
        text = f"argument --at: expected http://HOST:PORT or https://HOST:PORT, not {args.at!r}"
        raise UsageError(args.command, text)
    async with connected(args, terminal) as client:
        ticket = await client.console_ticket()
    page = args.at or _page(ticket, dialled)
    url = f"{page.rstrip('/')}/#/console/{ticket.ticket}"
    terminal.record({"url": url, "seconds": ticket.seconds})
    if args.open:
        import webbrowser

        terminal.flush()
        if not webbrowser.open(url):
            terminal.message("no browser could be opened: open the link yourself")


def _page(ticket: "ConsoleTicket", dialled: str) -> str:
    """Where the page is: at an address that means the whole machine, by the name that was dialled.

    Args:
        ticket: tells where the node listens.
        dialled: the address of its `noise` listener.
    """
    from rillnode.node.config import ListenAddress, parse_address
    from rillnode.node.config.address import WILDCARDS

    listen = parse_address(ticket.address)
    if listen.host in WILDCARDS:
        listen = ListenAddress(parse_address(dialled.removeprefix("noise://")).host, listen.port)
    return f"{'https' if ticket.tls else 'http'}://{listen}"
