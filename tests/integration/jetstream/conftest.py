"""What tests of nodes and stores on NATS JetStream share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nats_support import NatsServer, running_nats
from rillnode.actors.storage.jetstream import following, forwarding
from rillnode.actors.streams import retention
from store_support import ANSWER_SECONDS


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of the test's own."""
    with running_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def nobody_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners of logs that a busy machine lets say nothing for a while are not taken for gone."""
    monkeypatch.setattr(forwarding, "SILENT_SECONDS_MAX", ANSWER_SECONDS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes and stores look often for what nobody told them of."""
    monkeypatch.setattr(following, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.1)
