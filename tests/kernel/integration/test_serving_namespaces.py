"""A printer on a host that nobody dials: it answers over the link that it has dialled itself."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from doc_support import ROOT
from netns_support import Network, network
from nodes import node_config
from peer_support import eventually
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keys import Identity
from rillnode.node.config import GrantTable, NoiseListener
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node

PRINTER = Identity.from_seed(b"a printer far away".ljust(32, b"."))
GRANT = GrantTable(who=f"noise:{PRINTER.public_hex}", addresses="printer", may=("serve",))
SECONDS = 60.0


async def use(net: Network, directory: Path) -> None:
    machine = net.machine()
    noise = NoiseListener(
        listen=f"{net.prefix}.254:0", idle_ping_seconds=0.5, idle_close_seconds=2.0
    )
    config = msgspec.structs.replace(node_config(directory / "node", GRANT), noise=noise)
    key, ports = directory / "printer.key", directory / "ports.json"
    write_key(key, PRINTER)
    async with Node(config) as node:
        ports.write_text(json.dumps({**node.addresses(), "identity": node.identity}))
        printer = subprocess.Popen(
            [*machine.command, sys.executable, ROOT / "examples/printer.py", ports, key],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

        async def ask() -> bytes:
            return (await node.client.ask("printer", b"page", timeout_seconds=SECONDS)).payload

        try:
            assert printer.stdout is not None
            assert await asyncio.to_thread(printer.stdout.readline) == "ready\n"
            assert await eventually(ask) == b"printed 4 characters"
            # It is gone without a word: whoever asks is told once that is noticed.
            machine.isolate()
            with pytest.raises(RequestError) as caught:
                await ask()
            assert caught.value.code == "call.lost"
            with pytest.raises(RequestError) as caught:
                await ask()
            assert caught.value.code == "peer.unreachable"
            machine.join()
            assert await eventually(ask) == b"printed 4 characters"
            printer.send_signal(signal.SIGINT)
            printed = await asyncio.to_thread(printer.stdout.read)
            assert printed.endswith("no more pages\n")
            with pytest.raises(RequestError) as caught:
                await ask()
            assert caught.value.code == "address.unknown"
        finally:
            printer.kill()
            printer.wait()


@pytest.mark.needs("root")
def test_a_printer_that_nobody_can_dial_answers_and_comes_back(tmp_path: Path) -> None:
    async def main(net: Network) -> None:
        async with asyncio.timeout(3 * SECONDS):
            await use(net, tmp_path)

    with network() as net:
        asyncio.run(main(net))
