"""Nodes on servers with an operator, accounts and users; see also `test_log_access`."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from jetstream.support import Site
from nats_support import needs_nats
from nodes import connect_to, node_config
from rillnode.codecs.errors import StoreError
from rillnode.node.config import Config
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.node.runtime import Node

pytestmark = needs_nats


def config_of(site: Site, directory: Path, credentials: Path) -> Config:
    """A node of this site."""
    store = JetStreamStore(
        servers=(site.server.url.replace("nats:", "tls:"),),
        monitors=(site.server.monitor,),
        replicas=1,
        shards=2,
        tls_ca=site.certificate,
        credentials_file=credentials,
    )
    return msgspec.structs.replace(node_config(directory), store=store)


async def test_a_node_with_credentials_has_its_streams_there(site: Site, tmp_path: Path) -> None:
    def config(directory: Path) -> Config:
        return config_of(site, directory, site.account.credentials(directory.with_suffix(".creds")))

    async with Node(config(tmp_path / "a")) as node, await connect_to(node) as client:
        assert await (await client.stream("s")).push(b"0") == 0
        # The server is lost, and its node shows the credentials again.
        await asyncio.to_thread(site.server.kill)
        await asyncio.to_thread(site.server.start)
        assert await (await client.stream("s")).push(b"1") == 1
    # Another user of the same account.
    async with Node(config(tmp_path / "b")) as node, await connect_to(node) as client:
        entries = await (await client.stream("s")).pull(0)
        assert [entry.data for entry in entries] == [b"0", b"1"]


async def test_a_node_with_wrong_credentials_does_not_start(site: Site, tmp_path: Path) -> None:
    wrong = site.account.credentials(tmp_path / "wrong.creds", seconds=-60.0)
    with pytest.raises(StoreError, match="credentials_file") as caught:
        async with Node(config_of(site, tmp_path / "a", wrong)):
            pass
    assert (caught.value.code, caught.value.retryable) == ("store.denied", False)
