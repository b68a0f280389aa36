"""A pytest fixture, for `pytest_plugins` of a conftest.py: a network of simulated nodes."""

from collections.abc import Generator

import pytest

from rillnode.node.simulation.memory_network import MemoryNetwork


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a failed test be repeated with its seed, or run with another."""
    parser.addoption("--rillnode-seed", type=int, default=0, help="seed of `memory_network`")


@pytest.fixture
def memory_network(request: pytest.FixtureRequest) -> Generator[MemoryNetwork]:
    """A network of simulated nodes, empty at first."""
    seed = int(request.config.getoption("--rillnode-seed") or 0)
    with MemoryNetwork(seed=seed) as network:
        yield network
