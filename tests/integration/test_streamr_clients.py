"""Released Streamr clients, unmodified, against a node.

They run on Node.js, which `tests/integration/streamr_clients/install-node.sh` installs where it is
missing, and come from npm as the lock file beside it has them.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodes import node_config
from npm_support import npm_packages
from rillnode.node.config import GrantTable, StreamrListener
from rillnode.node.runtime import Node

SCRIPTS = Path(__file__).with_name("streamr_clients")
SCRIPT_SECONDS = 900.0
KEY = "11" * 32
OTHER_KEY = "22" * 32

pytestmark = pytest.mark.npm


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder that scripts find the clients in."""
    return npm_packages(SCRIPTS)


def run(directory: Path, clients: Path, script: str, generation: str, *more: str) -> list[Any]:
    """Run a script against a node where Ethereum keys may make streams; returns its steps."""

    async def main() -> list[Any]:
        grants = (GrantTable(who="eth:*", streams="*", may=("create",)),)
        config = msgspec.structs.replace(
            node_config(directory, *grants), streamr=StreamrListener(listen="127.0.0.1:0")
        )
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
    [pytest.param("v2", marks=OLDER), "v3", pytest.param("v4", marks=OLDER), "v5"],
)
def test_a_client_does_all_that_clients_do(tmp_path: Path, clients: Path, generation: str) -> None:
    steps = run(tmp_path, clients, "scenario.js", generation, OTHER_KEY)
    done = [step["step"] for step in steps if "step" in step]
    assert done[0] == "log in"
    assert done[-1] == "disconnect"
    assert {"resend", "break and heal", "share"} <= set(done)


@pytest.mark.parametrize("generation", ["v3", "v5"])
def test_what_is_encrypted_is_read_by_whom_it_is_for(
    tmp_path: Path, clients: Path, generation: str
) -> None:
    run(tmp_path, clients, "encrypted.js", generation, OTHER_KEY)


@pytest.mark.parametrize(
    "generation",
    [pytest.param("v2", marks=OLDER), "v3", pytest.param("v4", marks=OLDER), "v5"],
)
def test_disorder_and_forgeries_do_a_client_no_harm(
    tmp_path: Path, clients: Path, generation: str
) -> None:
    steps = run(tmp_path, clients, "disorder.js", generation, OTHER_KEY)
    done = {step["step"] for step in steps}
    assert {"out of order", "tampered", "malformed", "missed", "partitions"} <= done


def test_two_generations_meet_on_one_stream(tmp_path: Path, clients: Path) -> None:
    run(tmp_path, clients, "meeting.js", "v5", "v3")
