"""Sinks with Spark and without decrypt what Streamr's clients publish, with a file of keys."""

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from command_line import call
from nodes import node_config
from npm_support import npm_packages
from rillnode import streamr
from rillnode.node.config import Config, GrantTable, Location
from rillnode.node.runtime import Node
from rillnode.node.spark.config import PythonSink, SinkTables, SparkSink
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.table_config import TypedTable
from rillnode.node.streamr.config import StreamrListener
from table_readers import plain_rows

SCRIPTS: Final = Path(__file__).with_name("streamr_clients")
SECONDS_MAX: Final = 600.0
ALICE, BOB = "11" * 32, "22" * 32
GROUP_KEY: Final = "5e" * 32


def config_of(directory: Path, kind: str, keys: Path) -> Config:
    common: dict[str, Any] = {
        "name": "lake",
        "streams": ("*",),
        "table_dir": Location(directory / "table"),
        "trigger_seconds": 0.1,
        "decrypt": {"streamr": keys},
    }
    sinks = SinkTables(python=(PythonSink(**common),))
    if kind == "spark":
        common["silver_dir"] = Location(directory / "silver")
        sinks = SinkTables(spark=(SparkSink(**common),))
    table = TypedTable(streams=("*",), dir=Location(directory / "typed"), columns={"n": "int"})
    grants = (GrantTable(who="eth:*", streams="*", may=("create",)),)
    node = node_config(directory / "data", *grants)
    return node.having(StreamrListener(listen="127.0.0.1:0")).having(sinks).having(table)


def rows(directory: Path) -> list[dict[str, Any]]:
    if open_table(str(directory)) is None:
        return []
    found: list[dict[str, Any]] = plain_rows(str(directory)).to_pylist()
    return found


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.1)


def run(work: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await work

    asyncio.run(limited())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("python", id="python"),
        pytest.param("spark", id="spark", marks=[pytest.mark.spark, pytest.mark.long]),
    ],
)
def test_a_sink_decrypts_with_keys_that_come_while_it_runs(tmp_path: Path, kind: str) -> None:
    # The file is the publisher's own: a sink on its machine needs no other.
    keys = tmp_path / "alice.groups"

    async def work() -> None:
        async with Node(config_of(tmp_path, kind, keys)) as node:
            url = f"ws://{node.addresses()['streamr']}"
            async with await streamr.connect(url, private_key=ALICE, key_file=keys) as alice:
                await alice.create_stream("s", require_encrypted=True)
                await alice.encrypt("s")
                for n in range(3):
                    await alice.publish("s", {"n": n})
                await alice.encrypt("s")
                for n in range(3, 6):
                    await alice.publish("s", {"n": n})
                await alice.flush()
            await until(lambda: len(rows(tmp_path / "typed")) == 6)
            if kind == "spark":
                await until(lambda: len(rows(tmp_path / "silver")) == 6)

    run(work())
    assert sorted(row["n"] for row in rows(tmp_path / "typed")) == [*range(6)]
    assert rows(tmp_path / "typed_rejects") == []
    silver = rows(tmp_path / "silver")
    assert {(row["format"], row["signature"], row["encryption"]) for row in silver} <= {
        ("json", "valid", "aes")
    }
    secret = json.loads(keys.read_text().splitlines()[0])["key"]
    left = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert [path for path in left if secret.encode() in path.read_bytes()] == []
    bronze = rows(tmp_path / "table")
    assert all(b'"n"' not in row["data"] for row in bronze)


@pytest.mark.needs("node")
@pytest.mark.parametrize("generation", [pytest.param("v3", marks=pytest.mark.long), "v5"])
def test_what_a_released_client_encrypts_is_typed(tmp_path: Path, generation: str) -> None:
    packages, keys = npm_packages(SCRIPTS), tmp_path / "bob.groups"
    keys.touch(0o600)

    async def work() -> None:
        async with Node(config_of(tmp_path, "python", keys)) as node:
            address = node.addresses()["streamr"]
            process = await asyncio.create_subprocess_exec(
                "node", str(SCRIPTS / "sealed.js"), generation, f"ws://{address}/api/v1/ws",
                f"http://{address}/api/v1", ALICE, streamr.EthereumKey.from_hex(BOB).address,
                GROUP_KEY,
                env={**os.environ, "NODE_PATH": str(packages)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                opened, published = [json.loads(await process.stdout.readline()) for _ in "12"]
                assert opened["ok"], opened
                assert published["ok"], published
                await until(lambda: len(rows(tmp_path / "typed_rejects")) == 6)
                stream = opened["info"]["stream"]
                if generation == "v5":
                    await learn(f"ws://{address}", stream, keys)
                else:
                    keys.write_text(json.dumps({"stream": stream, "key": GROUP_KEY}))
                process.stdin.close()
                assert await process.wait() == 0
            finally:
                if process.returncode is None:
                    process.kill()

    run(work())
    (tmp_path / "node.toml").write_text(
        'name = "test"\n[[sink.python]]\nname = "lake"\nstreams = ["*"]\ntable_dir = "table"\n'
        f'decrypt = {{ streamr = "{keys.name}" }}\n'
        '[[table]]\nstreams = ["*"]\ndir = "typed"\ncolumns = { n = "int" }\n'
    )
    done = call("table", "retry", "typed", "-c", tmp_path / "node.toml")
    assert done.stderr.endswith(b"typed: 6 rejects fit now, 0 do not\n"), done.stderr
    assert sorted(row["n"] for row in rows(tmp_path / "typed")) == [*range(6)]


async def learn(url: str, stream: str, keys: Path) -> None:
    """Read a stream as one who may, so that its publisher's keys come into the file."""
    async with await streamr.connect(url, private_key=BOB, key_file=keys) as bob:
        got = [message async for message in bob.resend(stream, streamr.Last(6))]
    assert [message.content["n"] for message in got] == [*range(6)]
