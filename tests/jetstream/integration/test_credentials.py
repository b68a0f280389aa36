"""Servers with an operator, accounts and users: who has credentials gets in, who has wrong ones
is told."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from certificates import make_certificate
from nats_operator import Account, Operator
from nats_support import NatsServer, needs_nats
from nodes import connect_to, node_config
from rillnode.codecs.errors import StoreError
from rillnode.node.config import Config, StoreTable
from rillnode.node.runtime import Node

pytestmark = needs_nats


class Site:
    """A server that takes users of one account with JetStream, and of one without, over TLS."""

    def __init__(self, directory: Path) -> None:
        self.certificate, key = make_certificate(directory)
        self.account, self.poor = Account(), Account(jetstream=False)
        operator = Operator(directory, self.account, self.poor)
        tls = f'tls {{ cert_file: "{self.certificate}", key_file: "{key}" }}'
        self.server = NatsServer(directory / "nats", *operator.settings, tls)
        self.servers = (self.server.url.replace("nats:", "tls:"),)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.server.start()
    yield site
    site.server.kill()


def config_of(site: Site, directory: Path, credentials: Path | None) -> Config:
    """A node of this site."""
    store = StoreTable(
        engine="jetstream",
        servers=site.servers,
        monitors=(site.server.monitor,),
        replicas=1,
        shards=2,
        tls_ca=site.certificate,
        credentials_file=credentials,
    )
    return msgspec.structs.replace(node_config(directory), store=store)


async def started(config: Config) -> None:
    async with Node(config):
        pass


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


@pytest.mark.parametrize("wrong", ["none", "stranger", "expired"])
def test_wrong_credentials_are_refused_with_what_to_do(
    site: Site, tmp_path: Path, wrong: str
) -> None:
    file = tmp_path / "wrong.creds"
    credentials: Path | None = None
    if wrong == "stranger":
        credentials = Account().credentials(file)
    elif wrong == "expired":
        credentials = site.account.credentials(file, seconds=-60.0)
    with pytest.raises(StoreError, match="credentials_file") as caught:
        asyncio.run(started(config_of(site, tmp_path / "a", credentials)))
    assert (caught.value.code, caught.value.retryable) == ("store.denied", False)


def test_an_account_without_jetstream_is_named(site: Site, tmp_path: Path) -> None:
    credentials = site.poor.credentials(tmp_path / "poor.creds")
    with pytest.raises(StoreError, match="not enabled for account") as caught:
        asyncio.run(started(config_of(site, tmp_path / "a", credentials)))
    assert caught.value.code == "store.denied"
