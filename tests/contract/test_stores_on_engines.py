"""Tests nodes' shared stores on the engines that there are: the same as of the one in memory.

All that differs between engines is tested of each by `test_shared_log.py`, in the quick part, too.
"""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from contract import jetstream_site
from nats_support import needs_nats
from postgres.server import needs_postgres, start_postgres
from rillnode.testing.contract import SharedLogSite, StoreOnEngineContract


@pytest.mark.long
@needs_nats
class TestJetStream(StoreOnEngineContract):
    @classmethod
    def servers(cls, directory: Path) -> AbstractContextManager[SharedLogSite]:
        return jetstream_site.start(directory)


@pytest.mark.long
@needs_postgres
class TestPostgres(StoreOnEngineContract):
    @classmethod
    def servers(cls, directory: Path) -> AbstractContextManager[SharedLogSite]:
        return start_postgres(directory)
