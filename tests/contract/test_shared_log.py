"""Tests engines of shared logs: each is held to what all promise."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from contract import jetstream_site
from memory_site import MemorySite
from nats_support import needs_nats
from postgres.server import needs_postgres, start_postgres
from rillnode.testing.contract import SharedLogContract, SharedLogSite


class TestMemory(SharedLogContract):
    @classmethod
    def servers(cls, directory: Path) -> AbstractContextManager[SharedLogSite]:
        return nullcontext(MemorySite())


@needs_nats
class TestJetStream(SharedLogContract):
    @classmethod
    def servers(cls, directory: Path) -> AbstractContextManager[SharedLogSite]:
        return jetstream_site.start(directory)


@pytest.mark.long
@needs_postgres
class TestPostgres(SharedLogContract):
    @classmethod
    def servers(cls, directory: Path) -> AbstractContextManager[SharedLogSite]:
        return start_postgres(directory)
