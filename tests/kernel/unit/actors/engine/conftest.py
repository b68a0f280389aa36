"""The engine's tests, on each loop that it is promised to run on."""

import asyncio

import pytest
import uvloop

from actor_support import run
from coroutines import handed_by


# That the engine keeps its contract on uvloop is tested in tests/contract/test_engines.py, too.
@pytest.fixture(autouse=True, params=["asyncio", pytest.param("uvloop", marks=pytest.mark.long)])
def kind_of_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have loops that are made in the test be of this kind."""
    kind: str = request.param
    if kind == "uvloop":
        for module in (asyncio, asyncio.events):
            monkeypatch.setattr(module, "new_event_loop", uvloop.new_event_loop)
    return kind


base = handed_by(run)
clock = handed_by(run, 1)
