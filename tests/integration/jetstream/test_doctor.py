"""`rillnode doctor` on the servers of a store on JetStream."""

from pathlib import Path

import msgspec
import pytest

from nats_support import NatsServer, needs_nats
from ports import free_port
from rillnode.actors.storage.jetstream import checks
from rillnode.node.config import Config, StoreTable
from rillnode.node.doctor import Finding
from rillnode.node.doctor.servers import servers

pytestmark = needs_nats


@pytest.fixture
def config(tmp_path: Path, nats: NatsServer) -> Config:
    store = StoreTable(engine="jetstream", servers=(nats.url,), monitors=(nats.monitor,))
    return Config(name="a", data_dir=tmp_path / "data", store=store)


@pytest.fixture(autouse=True)
def new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the tests' server need not be."""
    monkeypatch.setattr(checks, "VERSION_MIN", (0, 0, 1))


def found(config: Config, **store: object) -> list[Finding]:
    changed = msgspec.structs.replace(config.store, **store)
    findings = list(servers(msgspec.structs.replace(config, store=changed)))
    assert all(bool(one.advice) is (one.state != "ok") for one in findings)
    return findings


def states(findings: list[Finding]) -> list[str]:
    return [one.state for one in findings]


def test_every_server_is_asked_by_itself(config: Config) -> None:
    dead = f"nats://127.0.0.1:{free_port()}"
    live, away, sync = found(config, servers=(config.store.servers[0], dead))
    assert (live.state, away.state, sync.state) == ("ok", "warn", "ok")
    assert live.text.startswith("nats-server ")
    assert dead in away.check
    assert states(found(config, servers=(dead,))) == ["fail", "ok"]


def test_early_servers_are_told_of(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "VERSION_MIN", (99, 0, 0))
    assert states(found(config)) == ["warn", "ok"]


@pytest.mark.parametrize(("sync", "state"), [("interval", "warn"), ("always", "fail")])
def test_servers_that_are_not_known_to_sync_are_told_of(
    config: Config, tmp_path: Path, sync: str, state: str
) -> None:
    server = NatsServer(tmp_path / "lazy", sync='"2m"')
    server.start()
    try:
        finding = found(config, monitors=(server.monitor,), sync=sync)[-1]
    finally:
        server.kill()
    assert (finding.state, "syncs every 120 seconds" in finding.text) == (state, True)
    finding = found(config, monitors=(), sync=sync)[-1]
    assert (finding.state, "no monitoring address" in finding.text) == (state, True)
    assert 'sync = "interval"' in finding.advice


def test_a_store_on_this_machine_has_no_servers(config: Config) -> None:
    assert found(config, engine="rocksdb") == []
