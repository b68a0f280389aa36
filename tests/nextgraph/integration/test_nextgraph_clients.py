"""The released NextGraph clients, unmodified: a wallet, documents, files, more devices, no broker.

They run on Node.js and on Python 3.10, and come from npm, as the lock file beside the script has
it, and from PyPI.
"""

import asyncio
import json
import os
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from nextgraph_devices import (
    DEED_SECONDS,
    PYPI_CLIENT,
    PYPI_PYTHON,
    SCRIPTS,
    BrokerProcess,
    Device,
    image,
    node_device,
    python_device,
)
from nodes import node_config
from npm_support import npm_packages
from pypi_support import pypi_python
from rillnode.actors.nextgraph.names import PREFIX
from rillnode.codecs.limits import ENTRY_BYTES_MAX
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.node.entries import Readers
from rillnode.node.nextgraph.branches import find_branches, read_branches, write_branches
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.runtime import Node

TEST_SECONDS: Final = 300.0
LONG_SECONDS: Final = 900.0
SILENT_SECONDS: Final = 65.0
"""Longer than any broker's patience may be: these clients say nothing of their own accord."""

ECHO: Final = "did:ng:z:echo"

pytestmark = pytest.mark.needs("node")


async def test_an_invited_user_s_second_device_has_everything_and_edits_go_both_ways(
    tmp_path: Path,
) -> None:
    packages = npm_packages(SCRIPTS)
    wallet, sent, received = tmp_path / "wallet.ngw", tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(os.urandom(2_500_000))
    config = node_config(tmp_path / "node").having(
        NextgraphListener(listen="127.0.0.1:0", registration="invitation")
    )
    async with AsyncExitStack() as stack, asyncio.timeout(TEST_SECONDS):
        node = await stack.enter_async_context(Node(config))
        first, second = [await stack.enter_async_context(node_device(packages)) for _ in range(2)]
        answer = await node.client.ask("nextgraph", b"{}")
        invited = json.loads(answer.payload)
        text = invited["link"].removeprefix("/#/i/")
        read = (await first.do("invitation", text=text))["invitation"]["V0"]
        (server,) = read["bootstrap"]["servers"]
        assert bytes(server["peer_id"]["Ed25519PubKey"]).hex() == node.facts["nextgraph_peer_id"]
        opening = await first.do(
            "create",
            port=int(node.addresses()["nextgraph"].rpartition(":")[2]),
            peer=node.facts["nextgraph_peer_id"],
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
        assert await texts_in_tables(node, await second.do("keys"), tmp_path) == ["one", "two"]


async def texts_in_tables(node: Node, wallet: dict[str, str], directory: Path) -> list[str]:
    """The texts that tables get of all documents, with the keys that a wallet leads to."""
    path = directory / "keys"
    path.write_text(json.dumps(wallet))
    path.chmod(0o600)
    found = await find_branches(node.client, read_branches(path))
    write_branches(path, found)
    reader = Readers({"nextgraph": str(path)}).of("nextgraph")
    texts: list[str] = []
    for name in await names(node):
        for entry in await (await node.client.stream(name)).pull(0):
            row = reader.decoded(entry.data)
            assert row.error is None, row
            inserts: list[dict[str, str]] = json.loads(row.content or '{"inserts":[]}')["inserts"]
            texts += [one["object"] for one in inserts if one["predicate"] == "did:ng:z:text"]
    return sorted(texts)


async def names(node: Node) -> list[str]:
    return [info.name for info in await node.client.streams(PREFIX)]


@pytest.mark.long
@pytest.mark.parametrize("size", [ENTRY_BYTES_MAX, NEXTGRAPH_MESSAGE_BYTES_MAX])
async def test_a_client_goes_on_without_an_edit_that_is_too_large(
    tmp_path: Path, size: int
) -> None:
    packages = npm_packages(SCRIPTS)
    wallet, large = tmp_path / "wallet.ngw", os.urandom(size // 2).hex()
    config = node_config(tmp_path / "node").having(
        NextgraphListener(listen="127.0.0.1:0", registration="open")
    )
    async with AsyncExitStack() as stack, asyncio.timeout(TEST_SECONDS):
        node = await stack.enter_async_context(Node(config))
        first, second = [await stack.enter_async_context(node_device(packages)) for _ in range(2)]
        opening = await first.do(
            "create",
            port=int(node.addresses()["nextgraph"].rpartition(":")[2]),
            peer=node.facts["nextgraph_peer_id"],
            code=None,
            image=str(image(tmp_path / "image.png")),
            file=str(wallet),
        )
        document = (await first.do("make"))["document"]
        await second.do("open", file=str(wallet), **opening)
        await second.do("write", document=document, text="0 second")  # from here on it is live
        with pytest.raises(AssertionError, match=r"InvalidRequest|WsError"):
            await first.do("write", document=document, text=large)
        await first.do("write", document=document, text="1 first")
        await reconnect(first)
        await second.reads(document, ["0 second", "1 first"])
        await second.do("write", document=document, text="2 second")
        await first.reads(document, ["0 second", "1 first", "2 second"])

        # A client that connects sends nothing any more of what was written behind one offline.
        await first.do("disconnect")
        await first.do("write", document=document, text=large)
        await first.do("write", document=document, text="behind it")
        await reconnect(first)
        await first.do("write", document=document, text="3 first")
        await reconnect(first)
        await second.reads(document, ["0 second", "1 first", "2 second", "3 first"])


async def reconnect(device: Device) -> None:
    """Connect, once the client has noticed that it is not connected any more."""
    await device.do("disconnect")
    async with asyncio.timeout(DEED_SECONDS):
        while True:
            with suppress(AssertionError):
                await device.do("connect")
                return
            await asyncio.sleep(0.2)


@pytest.mark.long
async def test_devices_in_two_languages_share_a_wallet_and_merge_what_they_wrote_without_a_broker(
    tmp_path: Path,
) -> None:
    packages, python = npm_packages(SCRIPTS), pypi_python(PYPI_PYTHON, PYPI_CLIENT)
    wallet, sent, received = tmp_path / "wallet.ngw", tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(os.urandom(2_500_000))
    home = tmp_path / "node"
    home.mkdir()
    async with AsyncExitStack() as stack, asyncio.timeout(LONG_SECONDS):
        broker = await stack.enter_async_context(BrokerProcess(home))
        laptop, phone = [await stack.enter_async_context(node_device(packages)) for _ in range(2)]
        opening = await laptop.do(
            "create",
            port=broker.port,
            peer=broker.peer_id,
            code=None,
            image=str(image(tmp_path / "image.png")),
            file=str(wallet),
        )
        opening["file"] = str(wallet)
        document = (await laptop.do("make"))["document"]
        await laptop.do("write", document=document, text="1 laptop")

        # A device in the other language has it; live from here on, both ways, after a silence.
        script = await stack.enter_async_context(python_device(python))
        await script.do("open", **opening)
        await asyncio.sleep(SILENT_SECONDS)
        await echoes(script, laptop, document, ["1 laptop"])
        await script.do("write", document=document, text="2 script")
        await laptop.reads(document, ["1 laptop", "2 script"])
        await laptop.do("write", document=document, text="3 laptop")
        await echoes(script, laptop, document, ["1 laptop", "2 script", "3 laptop"])
        other = (await script.do("make"))["document"]
        await script.do("write", document=other, text="1 script")

        # All write at one time, two of them offline; the broker dies.
        file = (await laptop.do("upload", path=str(sent)))["file"]
        await phone.do("open", **opening)
        await phone.reads(document, ["1 laptop", "2 script", "3 laptop"])
        await phone.reads(other, ["1 script"])
        await laptop.do("disconnect")
        await phone.do("disconnect")
        await laptop.do("write", document=document, text="4 laptop")
        await script.do("write", document=document, text="5 script")
        await broker.kill()
        await phone.do("write", document=document, text="6 phone")
        await broker.start()
        await phone.do("connect")
        await laptop.do("connect")
        texts = ["1 laptop", "2 script", "3 laptop", "4 laptop", "5 script", "6 phone"]
        await laptop.reads(document, texts)
        await phone.reads(document, texts)
        await phone.do("download", file=file, path=str(received))
        assert received.read_bytes() == sent.read_bytes()

        # And a device that has nothing yet gets everything.
        last = await stack.enter_async_context(python_device(python))
        await last.do("open", **opening)
        await echoes(last, laptop, document, texts)


async def echoes(writer: Device, reader: Device, document: str, texts: list[str]) -> None:
    """Wait until the writer has these texts of a document, as it shows to the reader."""
    async with asyncio.timeout(DEED_SECONDS):
        while True:
            await writer.do("echo", document=document)
            answer = await reader.do("read", document=document, predicate=ECHO)
            if answer["texts"] == texts:
                return
            await asyncio.sleep(0.2)
