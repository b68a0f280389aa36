"""Released Streamr clients, unmodified, against a node.

They run on Node.js, which `streamr_clients/install-node.sh` installs where it is
missing, and come from npm as the lock file beside it has them.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nodes import node_config
from npm_support import npm_packages
from rillnode import streamr
from rillnode.codecs.streamr.encryption import encrypt_message
from rillnode.codecs.streamr.message import encode_message
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node
from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.config import StreamrListener

SCRIPTS = Path(__file__).with_name("streamr_clients")
SCRIPT_SECONDS = 900.0
KEY = "11" * 32
OTHER_KEY = "22" * 32

pytestmark = pytest.mark.needs("node")


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder that scripts find the clients in."""
    return npm_packages(SCRIPTS)


def run(directory: Path, clients: Path, script: str, generation: str, *more: str) -> list[Any]:
    """Run a script against a node where Ethereum keys may make streams; returns its steps."""

    async def main() -> list[Any]:
        grants = (GrantTable(who="eth:*", streams="*", may=("create",)),)
        config = node_config(directory, *grants).having(StreamrListener(listen="127.0.0.1:0"))
        async with Node(config) as node, asyncio.timeout(SCRIPT_SECONDS):
            address = node.addresses()["streamr"]
            process = await asyncio.create_subprocess_exec(
                "node",
                str(SCRIPTS / script),
                generation,
                f"ws://{address}/api/v1/ws",
                f"http://{address}/api/v1",
                KEY,
                *more,
                env={**os.environ, "NODE_PATH": str(clients)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            try:
                out, err = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
        assert process.returncode == 0, f"{out.decode()[-4_000:]}\n{err.decode()[-2_000:]}"
        return [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]

    return asyncio.run(main())


OLDER = pytest.mark.long
"""Generations that differ little from the one after them."""


@pytest.mark.parametrize(
    "generation",
    [
        pytest.param("v2", marks=OLDER),
        "v3",
        pytest.param("v3.2", marks=OLDER),
        pytest.param("v4", marks=OLDER),
        "v5",
    ],
)
def test_a_client_does_all_that_clients_do(tmp_path: Path, clients: Path, generation: str) -> None:
    steps = run(tmp_path, clients, "scenario.js", generation, OTHER_KEY)
    done = [step["step"] for step in steps if "step" in step]
    assert done[0] == "log in"
    assert done[-1] == "disconnect"
    assert {"resend", "break and heal", "share"} <= set(done)


@pytest.mark.long  # quick are both halves: a client of here publishes below, and reads for a sink
@pytest.mark.parametrize("generation", ["v3", "v3.2", "v4", "v5"])
def test_what_is_encrypted_is_read_by_whom_it_is_for(
    tmp_path: Path, clients: Path, generation: str
) -> None:
    run(tmp_path, clients, "encrypted.js", generation, OTHER_KEY)


@pytest.mark.long
@pytest.mark.parametrize("generation", ["v2", "v3", "v3.2", "v4", "v5"])
def test_disorder_and_forgeries_do_a_client_no_harm(
    tmp_path: Path, clients: Path, generation: str
) -> None:
    steps = run(tmp_path, clients, "disorder.js", generation, OTHER_KEY)
    done = {step["step"] for step in steps}
    assert {"out of order", "tampered", "malformed", "missed", "partitions"} <= done


def test_a_client_goes_on_where_its_publisher_does_not_know_a_key(
    tmp_path: Path, clients: Path
) -> None:
    # The publisher's side is rillnode's: it answers by an error where released ones say nothing.
    unknown = streamr.GroupKey("nobody knows this one", bytes(range(32)))

    async def publish(
        follower: asyncio.subprocess.Process, alice: Client, other: aiohttp.ClientWebSocketResponse
    ) -> None:
        assert follower.stdout is not None
        while b"subscribed" not in (line := await follower.stdout.readline()):
            assert line, "the follower has ended"
        for n in range(4):
            name = await alice.publish("s", {"n": n})
            lost = StreamMessage(
                id=name._replace(timestamp=name.timestamp + 1, chain_id=f"lost {n}"),
                content=f'{{"n":{-n}}}',
            )
            key = streamr.EthereumKey.from_hex(KEY)
            signed = sign_message(encrypt_message(lost, unknown, os.urandom), key)
            await other.send_str(f'[2,8,"lost",{encode_message(signed, 32)},null]')

    async def talk(node: Node) -> Any:
        address = node.addresses()["streamr"]
        url = f"ws://{address}"
        query = "controlLayerVersion=2&messageLayerVersion=32"
        async with (
            await streamr.connect(url, private_key=KEY) as alice,
            aiohttp.ClientSession() as http,
            http.ws_connect(f"{url}/api/v1/ws?{query}") as other,
        ):
            await alice.create_stream("s")
            reader = streamr.EthereumKey.from_hex(OTHER_KEY).address
            await alice.grant("s", "get", "subscribe", user=reader)
            await alice.encrypt("s")
            script = (str(SCRIPTS / "follow.js"), "v5", f"{url}/api/v1/ws")
            process = await asyncio.create_subprocess_exec(
                "node", *script, f"http://{address}/api/v1", OTHER_KEY, "s", "4",
                env={**os.environ, "NODE_PATH": str(clients)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )  # fmt: skip
            try:
                await publish(process, alice, other)
                out, err = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
            assert process.returncode == 0, f"{out.decode()[-4_000:]}\n{err.decode()[-2_000:]}"
            return json.loads(out.splitlines()[-1])

    async def main() -> Any:
        grants = (GrantTable(who="eth:*", streams="*", may=("create",)),)
        config = node_config(tmp_path, *grants).having(StreamrListener(listen="127.0.0.1:0"))
        async with Node(config) as node, asyncio.timeout(SCRIPT_SECONDS):
            return await talk(node)

    told = asyncio.run(main())["info"]
    assert told["got"] == [0, 1, 2, 3]
    assert told["errors"]
    assert all("this publisher does not have these keys" in error for error in told["errors"])


def test_two_generations_meet_on_one_stream(tmp_path: Path, clients: Path) -> None:
    run(tmp_path, clients, "meeting.js", "v5", "v3")
