"""`rillnode actor` and `rillnode route ls` against a node."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coroutines import handed_by
from fake_client import Screen
from nodes import CLIENT, node_config, store_with
from rillnode.node.cli import main
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node


def with_node(directory: Path, test: Callable[[Node, Any], Any]) -> None:
    """Run a test with a node that has a stream and an actor, and commands that are sent to it."""
    write_key(directory / "client.key", CLIENT)

    async def main_() -> None:
        async with Node(node_config(directory / "data"), make_store=store_with()) as node:
            await node.stream("sensors", partitions=2)
            await node.spawn(lambda message, ctx: b"hello", address="greeter")
            url = f"noise://{node.addresses()['noise']}"
            key = str(directory / "client.key")
            where = ["--node", url, "--key", key, "--node-identity", node.identity]

            async def run(*argv: str, tty: bool = False) -> tuple[int, str, str]:
                screen = Screen(tty=tty, environ={"COLUMNS": "240"})
                code = await asyncio.to_thread(main, [*argv, *where], screen.terminal)
                return code, screen.out, screen.err

            await test(node, run)

    asyncio.run(asyncio.wait_for(main_(), 60.0))


node = handed_by(with_node)
run = handed_by(with_node, 1)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_ls_lists_what_has_a_route(node: Node, run: Any) -> None:
    for noun in ("actor", "route"):
        code, out, _ = await run(noun, "ls", "--json")
        assert code == 0
        found = {row["route"]: row for row in lines(out)}
        assert found["greeter"]["kind"] == "actor"
        assert found["ST_S_1_sensors"]["name"] == "sensors/1"
        kinds = {row["kind"] for row in found.values()}
        assert kinds >= {"actor", "stream", "link", "service"}
    code, out, _ = await run("actor", "ls", "sensors/*", "--kind", "stream", "--json")
    assert [row["route"] for row in lines(out)] == ["ST_S_0_sensors", "ST_S_1_sensors"]
    code, out, err = await run("actor", "ls", "*", "--limit", "1", "--json")
    assert (code, len(lines(out))) == (0, 1)
    assert "--limit shows more" in err


async def test_ls_is_a_table_for_people(node: Node, run: Any) -> None:
    _, out, _ = await run("route", "ls", "greeter", tty=True)
    assert "mailbox" in out
    assert "greeter" in out
    _, out, err = await run("route", "ls", "nothing", tty=True)
    assert (out, "or none that your key may know of" in err) == ("", True)


async def test_show_and_stop_one(node: Node, run: Any) -> None:
    code, out, _ = await run("actor", "show", "greeter", "--json")
    (shown,) = lines(out)
    assert code == 0
    assert (shown["state"], shown["failures"], shown["stoppable"]) == ("idle", 0, True)
    assert shown["since"].endswith("Z")
    code, out, _ = await run("actor", "stop", "greeter", "--json")
    assert (code, lines(out)) == (
        0, [{"route": "greeter", "kind": "actor", "stopped": True}],
    )  # fmt: skip
    code, _, err = await run("actor", "show", "greeter")
    assert (code, "address.unknown" in err, "check the route" in err) == (1, True, True)


async def test_what_stays_says_why(node: Node, run: Any) -> None:
    code, _, err = await run("actor", "stop", "echo")
    assert code == 1
    assert "the node needs it" in err
    assert "rillnode actor show ROUTE" in err


async def test_what_is_written_wrongly_is_a_matter_of_usage(node: Node, run: Any) -> None:
    for argv in (
        ("actor", "ls", "--kind", "stone"),
        ("actor", "ls", "--limit", "0"),
        ("actor", "show", "#"),
        ("actor", "show"),
        ("route", "ls", "--at", "#"),
    ):
        code, _, err = await run(*argv)
        assert code == 2, argv
        assert err
