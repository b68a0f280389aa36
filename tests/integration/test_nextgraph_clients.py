"""The released NextGraph client, unmodified: a wallet, documents, files, a second device.

It runs on Node.js and comes from npm as the lock file beside the script has it.
"""

import asyncio
import json
import os
import struct
import subprocess
import zlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pytest

from nodes import node_config
from npm_support import npm_packages
from rillnode.actors.nextgraph.records import PREFIX
from rillnode.node.config import NextgraphListener
from rillnode.node.runtime import Node

SCRIPTS: Final = Path(__file__).with_name("nextgraph_clients")
DEED_SECONDS: Final = 120.0
TEST_SECONDS: Final = 300.0

pytestmark = pytest.mark.npm


class Device:
    """One process with a NextGraph client."""

    def __init__(self, packages: Path) -> None:
        self._packages = packages

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(SCRIPTS / "device.js"),
            env={**os.environ, "NODE_PATH": str(self._packages)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def do(self, deed: str, **details: Any) -> dict[str, Any]:
        """Have the client do something; return what came of it."""
        said, heard = self._process.stdin, self._process.stdout
        assert said is not None
        assert heard is not None
        said.write(json.dumps({"do": deed, **details}).encode() + b"\n")
        async with asyncio.timeout(DEED_SECONDS):
            while line := await heard.readline():
                if line.startswith(b"=> "):
                    answer: dict[str, Any] = json.loads(line[3:])
                    assert "error" not in answer, (deed, answer)
                    return answer
        raise AssertionError(f"the client has ended at {deed!r}")

    async def reads(self, document: str, texts: list[str]) -> None:
        """Wait until the client has these texts of a document."""
        async with asyncio.timeout(DEED_SECONDS):
            while (await self.do("read", document=document))["texts"] != texts:
                await asyncio.sleep(0.1)


def image(path: Path) -> Path:
    """A picture, which every wallet needs."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + bytes((x * y + x) % 256 for x in range(600)) for y in range(200))
    header = struct.pack(">IIBBBBB", 200, 200, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks))
    return path


def test_an_invited_user_s_second_device_has_everything_and_edits_go_both_ways(
    tmp_path: Path,
) -> None:
    packages = npm_packages(SCRIPTS)
    wallet, sent, received = tmp_path / "wallet.ngw", tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(os.urandom(2_500_000))
    config = msgspec.structs.replace(
        node_config(tmp_path / "node"),
        nextgraph=NextgraphListener(listen="127.0.0.1:0", registration="invitation"),
    )

    async def main() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(TEST_SECONDS):
            node = await stack.enter_async_context(Node(config))
            first, second = [await stack.enter_async_context(Device(packages)) for _ in range(2)]
            answer = await node.client.ask("nextgraph", b"{}")
            invited = json.loads(answer.payload)
            text = invited["link"].removeprefix("/#/i/")
            read = (await first.do("invitation", text=text))["invitation"]["V0"]
            (server,) = read["bootstrap"]["servers"]
            assert bytes(server["peer_id"]["Ed25519PubKey"]).hex() == node.nextgraph_peer_id
            opening = await first.do(
                "create",
                port=int(node.addresses()["nextgraph"].rpartition(":")[2]),
                peer=node.nextgraph_peer_id,
                code=invited["code"],
                image=str(image(tmp_path / "image.png")),
                file=str(wallet),
            )
            infos = [await node.client.describe(name) for name in await names(node)]
            ends = sorted(part.next_index for info in infos for part in info.partitions)
            assert (len(ends), sum(ends)) == (14, 36)
            document = (await first.do("make"))["document"]
            await first.do("write", document=document, text="one")
            file = (await first.do("upload", path=str(sent)))["file"]
            await second.do("open", file=str(wallet), **opening)
            await second.reads(document, ["one"])
            await second.do("write", document=document, text="two")
            await first.reads(document, ["one", "two"])
            await second.do("download", file=file, path=str(received))
            assert received.read_bytes() == sent.read_bytes()

    asyncio.run(main())


async def names(node: Node) -> list[str]:
    return [info.name for info in await node.client.streams(PREFIX)]
