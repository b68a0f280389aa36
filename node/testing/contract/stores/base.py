"""Declares what the suites of stores ask of a store."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from rillnode.node.testing.contract.base import Contract
from rillnode.node.testing.contract.stores.driver import StoreDriver


class StoreBase(Contract):
    """A suite of a store: a subclass says by `open_store` how one is made.

    Attributes:
        has_others: whether others may write to the store's logs.
    """

    has_others: ClassVar[bool] = False

    def open_store(self, directory: Path) -> StoreDriver:
        """Drives a new store, which is open and has nothing yet.

        Args:
            directory: where it may keep its data; it is not there yet.
        """
        raise NotImplementedError

    @pytest.fixture
    def driver(self, tmp_path: Path) -> Iterator[StoreDriver]:
        """What `open_store` gives."""
        opened = self.open_store(tmp_path / "store")
        yield opened
        opened.end()
