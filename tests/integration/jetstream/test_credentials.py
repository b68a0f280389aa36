"""Servers with an operator, accounts and users: who has credentials gets in, who has wrong ones
is told."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from certificates import make_certificate
from nats_operator import Account, Operator
from nats_support import NatsServer, needs_nats
from nodes import connect_to, node_config
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.store import JetStreamLogStore
from rillnode.codecs.errors import StoreError
from rillnode.node.config import Config, StoreTable
from rillnode.node.runtime import Node
from store_support import wait_until

pytestmark = needs_nats


class Site:
    """A server that takes users of one account with JetStream, and of one without, over TLS."""

    def __init__(self, directory: Path) -> None:
        self.certificate, key = make_certificate(directory)
        self.account, self.poor = Account(), Account(jetstream=False)
        operator = Operator(directory, self.account, self.poor)
        tls = f'tls {{ cert_file: "{self.certificate}", key_file: "{key}" }}'
        self.server = NatsServer(directory / "nats", *operator.settings, tls)
        self.options = JetStreamOptions(
            servers=(self.server.url.replace("nats:", "tls:"),),
            monitors=(self.server.monitor,),
            replicas=1,
            tls_ca=self.certificate,
            answer_seconds_max=10.0,
            patience_seconds=0.0,
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.server.start()
    yield site
    site.server.kill()


def opened(options: JetStreamOptions) -> JetStreamLogStore:
    store = JetStreamLogStore(options, complete=lambda _: None, on_health=lambda _: None)
    store.open()
    return store


def test_a_node_with_credentials_has_its_streams_there(site: Site, tmp_path: Path) -> None:
    def config(directory: Path) -> Config:
        store = StoreTable(
            engine="jetstream",
            servers=site.options.servers,
            monitors=site.options.monitors,
            replicas=1,
            tls_ca=site.certificate,
            credentials_file=site.account.credentials(directory.with_suffix(".creds")),
        )
        return msgspec.structs.replace(node_config(directory), store=store)

    async def run() -> None:
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

    asyncio.run(run())


def test_each_account_has_streams_of_its_own(tmp_path: Path) -> None:
    one, other = Account(), Account()
    server = NatsServer(tmp_path / "nats", *Operator(tmp_path, one, other).settings)
    server.start()
    try:
        options = JetStreamOptions(servers=(server.url,), monitors=(server.monitor,), replicas=1)
        stores = [
            opened(replace(options, credentials=account.credentials(tmp_path / f"{number}.creds")))
            for number, account in enumerate((one, other))
        ]
        for store in stores:
            # Both have a journal, and neither has seen the other's.
            assert store.health.writable
            store.close()
    finally:
        server.kill()


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
    started = time.monotonic()
    with pytest.raises(StoreError, match="credentials_file") as caught:
        opened(replace(site.options, credentials=credentials))
    assert (caught.value.code, caught.value.retryable) == ("store.denied", False)
    assert time.monotonic() - started < site.options.settle_seconds_max / 2


def test_an_account_without_jetstream_is_named(site: Site, tmp_path: Path) -> None:
    credentials = site.poor.credentials(tmp_path / "poor.creds")
    with pytest.raises(StoreError, match="not enabled for account") as caught:
        opened(replace(site.options, credentials=credentials))
    assert caught.value.code == "store.denied"


@pytest.mark.parametrize("content", ["", "no credentials\n", "-----BEGIN NATS USER JWT-----\n"])
def test_a_file_that_holds_no_credentials_is_named(
    site: Site, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "node.creds"
    file.write_text(content)
    with pytest.raises(StoreError, match=r"node\.creds") as caught:
        opened(replace(site.options, credentials=file))
    assert (caught.value.code, caught.value.retryable) == ("store.denied", False)


def test_credentials_that_end_while_a_node_runs_are_shown_and_can_be_replaced(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "node.creds"
    options = replace(site.options, credentials=site.account.credentials(file))
    started = time.monotonic()
    opened(options).close()
    # They are to be good until a node runs, however busy the machine is.
    site.account.credentials(file, seconds=3.0 + 3.0 * (time.monotonic() - started))
    store = opened(options)
    try:
        wait_until(lambda: not store.health.writable)
        wait_until(lambda: "credentials_file" in store.health.reason)
        site.account.credentials(file)
        wait_until(lambda: store.health.writable)
    finally:
        store.close()
