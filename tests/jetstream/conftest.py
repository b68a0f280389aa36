"""Shares fixtures among tests of NATS JetStream."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jetstream.support import Site, options_of
from nats_support import NatsServer, impatient, nats
from rillnode.actors.jetstream.options import JetStreamOptions

__all__ = ["impatient", "nats", "options", "site"]


@pytest.fixture
def options(nats: NatsServer) -> JetStreamOptions:
    """A client's of that server."""
    return options_of(nats)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A server that wants to know who connects."""
    site = Site(tmp_path)
    site.server.start()
    yield site
    site.server.kill()
