"""`rillnode doctor` on the servers of a store on JetStream."""

from collections.abc import Callable
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


def says(fault: str | None) -> Callable[[str, bytes], str | None]:
    def sync_fault(url: str, answer: bytes) -> str | None:
        return fault

    return sync_fault


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the tests' server need not be, nor new."""
    monkeypatch.setattr(checks, "sync_fault", says(None))
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


@pytest.mark.parametrize(("required", "state"), [(False, "warn"), (True, "fail")])
def test_servers_that_do_not_sync_are_told_of(
    config: Config, monkeypatch: pytest.MonkeyPatch, *, required: bool, state: str
) -> None:
    monkeypatch.setattr(checks, "sync_fault", says("not synced"))
    sync = found(config, sync_required=required)[-1]
    assert (sync.state, sync.text) == (state, "not synced")


def test_a_store_on_this_machine_has_no_servers(config: Config) -> None:
    assert found(config, engine="rocksdb") == []
