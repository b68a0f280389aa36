"""`run --trace` shows what goes over a node's links, and nothing of what it holds."""

import asyncio
import io
import json
from pathlib import Path

from nodes import connect_to, node_config
from rillnode.node.config import LogTable
from rillnode.node.logs import configure_logs
from rillnode.node.runtime import Node

SECRET = "a secret that nobody shall read"


async def talk(directory: Path) -> None:
    async with Node(node_config(directory)) as node, await connect_to(node) as client:
        stream = await client.stream(SECRET.replace(" ", "_"))
        await stream.push(SECRET.encode())
        assert [entry.data for entry in await stream.pull()] == [SECRET.encode()]


def test_kinds_and_sizes_are_told_and_nothing_else(tmp_path: Path) -> None:
    log = io.StringIO()
    configure_logs(LogTable(format="json", level="warning", trace=("noise",)), log)
    asyncio.run(talk(tmp_path))
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {line["logger"] for line in lines} == {"rillnode.trace.noise"}
    assert {line["level"] for line in lines} == {"trace"}
    told = [(line["event"], line["kind"]) for line in lines]
    assert told[:4] == [
        ("received", "rillnode_open"),
        ("sent", "rillnode_stream"),
        ("received", "rillnode_append"),
        ("sent", "rillnode_position"),
    ]
    assert ("received", "rillnode_read") in told
    assert all(line["bytes"] > 0 and line["remote"].startswith("127.0.0.1:") for line in lines)
    assert SECRET not in log.getvalue()
    assert SECRET.replace(" ", "_") not in log.getvalue()
    keys = {"time", "level", "logger", "event", "remote", "kind", "bytes"}
    assert all(line.keys() == keys for line in lines)


def test_without_it_even_debug_tells_of_no_message(tmp_path: Path) -> None:
    log = io.StringIO()
    configure_logs(LogTable(format="json", level="debug"), log)
    asyncio.run(talk(tmp_path))
    assert log.getvalue()
    assert "rillnode.trace" not in log.getvalue()
