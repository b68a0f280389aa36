"""Released NextGraph clients whose broker is two nodes of one store, behind one address."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from nats_support import NatsServer, needs_nats, on_jetstream
from nextgraph_devices import SCRIPTS, image, node_device
from nodes import node_config
from npm_support import npm_packages
from rillnode.codecs.keys import Identity
from rillnode.node.config import Config
from rillnode.node.keys.files import write_key
from rillnode.node.nextgraph.config import NextgraphListener, nextgraph_key_file
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.proxy import Proxy

TEST_SECONDS: Final = 600.0
BROKER: Final = Identity.from_seed(b"broker".ljust(32, b"."))

pytestmark = [pytest.mark.needs("node"), pytest.mark.long, needs_nats]


def config_of(directory: Path, nats: NatsServer) -> Config:
    listener = NextgraphListener(listen="127.0.0.1:0", registration="open")
    config = on_jetstream(node_config(directory), nats).having(listener)
    write_key(nextgraph_key_file(config), BROKER)
    return config


async def test_devices_at_two_nodes_edit_one_document_and_go_on_when_one_is_lost(
    nats: NatsServer, tmp_path: Path
) -> None:
    packages = npm_packages(SCRIPTS)
    wallet, sent, received = tmp_path / "wallet.ngw", tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(os.urandom(2_500_000))
    async with AsyncExitStack() as stack, asyncio.timeout(TEST_SECONDS):
        first = Node(config_of(tmp_path / "a", nats))
        await first.start()
        second = await stack.enter_async_context(Node(config_of(tmp_path / "b", nats)))
        one, other = first.addresses()["nextgraph"], second.addresses()["nextgraph"]
        proxy = await stack.enter_async_context(Proxy(one))
        laptop, phone, tablet = [
            await stack.enter_async_context(node_device(packages)) for _ in range(3)
        ]
        opening = await laptop.do(
            "create",
            port=int(proxy.address.rpartition(":")[2]),
            peer=BROKER.public_hex,
            code=None,
            image=str(image(tmp_path / "image.png")),
            file=str(wallet),
        )
        document = (await laptop.do("make"))["document"]
        await laptop.do("write", document=document, text="1 laptop")
        file = (await laptop.do("upload", path=str(sent)))["file"]

        # A device at the other node has all of it; live from here on, both ways.
        proxy.point_to(other)
        await phone.do("open", file=str(wallet), **opening)
        await phone.reads(document, ["1 laptop"])
        await phone.do("download", file=file, path=str(received))
        assert received.read_bytes() == sent.read_bytes()
        texts = ["1 laptop"]
        for number, writer in enumerate((phone, laptop) * 5, start=2):
            texts.append(f"{number} text")
            await writer.do("write", document=document, text=texts[-1])
            for device in (laptop, phone):
                await device.reads(document, sorted(texts))

        # What one writes while it is away comes once it is at the other node.
        await laptop.do("disconnect")
        await first.stop()
        await laptop.do("write", document=document, text="laptop alone")
        await phone.do("write", document=document, text="phone meanwhile")
        texts += ["laptop alone", "phone meanwhile"]
        await laptop.do("connect")
        for device in (laptop, phone):
            await device.reads(document, sorted(texts))
        await tablet.do("open", file=str(wallet), **opening)
        await tablet.reads(document, sorted(texts))
