"""A node that is killed after it has stored what a request pushes, and before it answers."""

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Final

import pytest

from forked import PIPE, Forked
from gateway_support import WRITER

NODE: Final = """
import asyncio, json, os, signal, sys
from pathlib import Path
from gateway_support import gateway_config
from rillnode.node.gateway import plugin
from rillnode.node.runtime import Node

settle = plugin._settle

async def settle_and_die(placed):
    await settle(placed)
    if placed and sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)

plugin._settle = settle_and_die

async def main():
    async with Node(gateway_config(Path(sys.argv[1]))) as node:
        print(json.dumps(node.addresses()), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def push(address: str, body: bytes, key: str) -> tuple[int, object]:
    """Status and answer of a request."""
    request = urllib.request.Request(
        f"http://{address}/streams/s",
        body,
        {"Authorization": f"Bearer {WRITER}", "Idempotency-Key": key},
    )
    try:
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["code"]


def test_a_request_that_was_not_answered_is_stored_once(tmp_path: Path) -> None:
    for dies in ("dies", "lives"):
        node = Forked("-c", NODE, tmp_path, dies, stdout=PIPE, text=True)
        try:
            assert node.stdout is not None
            address = json.loads(node.stdout.readline())["gateway"]
            if dies == "dies":
                with pytest.raises((ConnectionError, HTTPException)):
                    push(address, b"an order", "order-7")
                continue
            once = {"indexes": [{"partition": 0, "index": 0}]}
            assert push(address, b"an order", "order-7") == (200, once)
            assert push(address, b"another order", "order-7") == (422, "once.other")
            next_one = {"indexes": [{"partition": 0, "index": 1}]}
            assert push(address, b"an order", "order-8") == (200, next_one)
        finally:
            node.kill()
            node.wait()
