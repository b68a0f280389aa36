"""`rillnode doctor` on the servers of a store on JetStream."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nats_support import SHARDS, NatsServer, needs_nats, on_jetstream, running_nats
from nodes import CLIENT, node_config
from rillnode.actors.jetstream import checks
from rillnode.actors.jetstream.connection import Connection
from rillnode.codecs.keys import Identity
from rillnode.node.config import Config, StoreTable
from rillnode.node.doctor import Finding
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.node.jetstream.doctor import servers
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.ports import free_port

pytestmark = needs_nats


@pytest.fixture
def config(tmp_path: Path, nats: NatsServer) -> Config:
    store = JetStreamStore(servers=(nats.url,), monitors=(nats.monitor,))
    return Config(name="a", data_dir=tmp_path / "data", store=store)


def found(config: Config, **store: object) -> list[Finding]:
    changed = msgspec.structs.replace(config.store, **store)
    findings = list(servers(msgspec.structs.replace(config, store=changed), {}))
    assert all(bool(one.advice) is (one.state != "ok") for one in findings)
    return findings


def store_of(config: Config) -> JetStreamStore:
    assert isinstance(config.store, JetStreamStore)
    return config.store


def states(findings: list[Finding]) -> list[str]:
    return [one.state for one in findings]


def test_every_server_is_asked_by_itself(config: Config) -> None:
    dead = f"nats://127.0.0.1:{free_port()}"
    live, away, sync, log = found(config, servers=(store_of(config).servers[0], dead))
    assert (live.state, away.state, sync.state, log.state) == ("ok", "warn", "ok", "ok")
    assert "not made yet" in log.text
    assert live.text.startswith("nats-server ")
    assert dead in away.check
    assert states(found(config, servers=(dead,))) == ["fail", "ok", "fail"]


def test_early_servers_are_told_of(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "REPLICAS_VERSION_MIN", (99, 0, 0))
    # Where there are replicas, no node starts with them.
    assert states(found(config, replicas=1)) == ["warn", "ok", "ok"]
    assert states(found(config, replicas=3)) == ["fail", "ok", "ok"]


@pytest.mark.parametrize(("sync", "state"), [("interval", "warn"), ("always", "fail")])
def test_servers_that_are_not_known_to_sync_are_told_of(
    config: Config, tmp_path: Path, sync: str, state: str
) -> None:
    with running_nats(tmp_path / "lazy", sync='"2m"') as server:
        finding = found(config, monitors=(server.monitor,), sync=sync)[1]
    assert (finding.state, "syncs every 120 seconds" in finding.text) == (state, True)
    finding = found(config, monitors=(), sync=sync)[1]
    assert (finding.state, "no monitoring address" in finding.text) == (state, True)
    assert 'sync = "interval"' in finding.advice


def test_the_log_and_the_views_of_a_node_that_runs_are_told_of(
    nats: NatsServer, tmp_path: Path
) -> None:
    config = on_jetstream(node_config(tmp_path / "a"), nats)
    listener = msgspec.structs.replace(config.noise, listen=f"127.0.0.1:{free_port()}")
    store = msgspec.structs.replace(config.store, serve=("sensors*", "!logs*"))
    config = msgspec.structs.replace(config, noise=listener, store=store)
    write_key(config.admin_key_file, CLIENT)
    write_key(config.key_file, Identity.from_seed(b"node".ljust(32, b".")))

    async def run() -> tuple[list[Finding], Finding]:
        async with Node(config) as node:
            stream = await node.client.stream("s")
            await stream.push(b"x")
            well = await asyncio.to_thread(found, config)
            store: Any = node.observed.store
            await store.log.append(0, b"of a stranger")
            await store.shards[0].fresh()
            return well, (await asyncio.to_thread(found, config))[-1]

    (*_, log, views), warned = asyncio.run(run())
    assert (log.state, log.text.split(",")[0]) == ("ok", f"{SHARDS} shards")
    assert (views.state, f"of {SHARDS} shards in use" in views.text) == ("ok", True)
    assert views.text.endswith("0 with snapshots; serves sensors*, !logs*")
    assert (warned.state, warned.text[-17:]) == ("warn", "damaged frames: 1")
    assert found(config)[-1].check == "store log"

    async def lose(stream: str) -> None:
        connection = Connection(store_of(config).options)
        await connection.open()
        await connection.call(f"STREAM.DELETE.{stream}", None, dict[str, Any])
        await connection.close()

    # Without that of shard 0 nobody says how many there are.
    for number, said in ((1, "1 are missing"), (0, "rillnode-log-0 is missing, while others are")):
        asyncio.run(lose(f"rillnode-log-{number}"))
        lost = found(config)[-1]
        assert (lost.state, said in lost.text) == ("fail", True)


def test_a_store_on_this_machine_has_no_servers(config: Config) -> None:
    assert list(servers(msgspec.structs.replace(config, store=StoreTable()), {})) == []
