"""A pytest fixture, found by pytest itself: a network of simulated nodes.

A node is imported by the first test that asks for one: pytest loads this in every project's run.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rillnode.node.simulation.application import Network


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a failed test be repeated with its seed, or run with another."""
    parser.addoption("--rillnode-seed", type=int, default=0, help="seed of `rillnode_network`")


@pytest.fixture
def rillnode_network(request: pytest.FixtureRequest) -> "Generator[Network]":
    """A network of simulated nodes, empty at first."""
    from rillnode.node.simulation.application import Network

    seed = int(request.config.getoption("--rillnode-seed") or 0)
    with Network(seed=seed) as network:
        yield network
