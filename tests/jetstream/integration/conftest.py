"""Shares fixtures among tests of nodes on NATS JetStream."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nats_support import NatsServer, running_nats
from rillnode.actors.core.streams import retention


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of the test's own."""
    with running_nats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes look often for what is to be trimmed."""
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.1)
