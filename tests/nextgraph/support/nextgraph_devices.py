"""Released NextGraph clients, each in a process of its own, and a broker that can be killed."""

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

SCRIPTS: Final = Path(__file__).parents[1] / "integration" / "nextgraph_clients"
PYPI_CLIENT: Final = "nextgraphpy==0.1a1.dev4"
PYPI_PYTHON: Final = "3.10"
"""What its wheels are built for."""

DEED_SECONDS: Final = 120.0


class Device:
    """One process with a NextGraph client, told what to do as `device.js` and `device.py` say."""

    def __init__(self, *command: str | Path, **environment: str) -> None:
        self._command = command
        self._environment = environment

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env={**os.environ, **self._environment},
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

    async def reads(self, document: str, texts: Sequence[str]) -> None:
        """Wait until the client has these texts of a document."""
        async with asyncio.timeout(DEED_SECONDS):
            while (await self.do("read", document=document))["texts"] != list(texts):
                await asyncio.sleep(0.1)


def node_device(packages: Path) -> Device:
    """A device with the client of npm."""
    return Device("node", SCRIPTS / "device.js", NODE_PATH=str(packages))


def python_device(python: Path) -> Device:
    """A device with the client of PyPI."""
    return Device(python, SCRIPTS / "device.py")


class BrokerProcess:
    """A node with an open broker in a process of its own, always at the same address."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = directory / "ports.json"
        self.address = "127.0.0.1:0"
        self.peer_id = ""

    @property
    def port(self) -> int:
        """Where clients find it."""
        return int(self.address.rpartition(":")[2])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """Start it on what is stored."""
        self._ports.unlink(missing_ok=True)
        options = ["--data-dir", str(self._directory), "--ports-file", str(self._ports), "--quiet"]
        for listener in ("noise", "http"):
            options += ["--set", f"{listener}.listen=127.0.0.1:0"]
        options += ["--set", f"nextgraph.listen={self.address}"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rillnode", "run", "--dev", *options
        )
        while not self._ports.exists():
            assert self._process.returncode is None
            await asyncio.sleep(0.02)
        ports = json.loads(self._ports.read_text())
        self.address, self.peer_id = ports["nextgraph"], ports["nextgraph_peer_id"]

    async def kill(self) -> None:
        """Have it end at once, whatever it does."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


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
