"""The engine's tests, on each loop that it is promised to run on."""

import asyncio

import pytest
import uvloop

from actor_support import run
from coroutines import handed_by


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def kind_of_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have loops that are made in the test be of this kind."""
    kind: str = request.param
    if kind == "uvloop":
        for module in (asyncio, asyncio.events):
            monkeypatch.setattr(module, "new_event_loop", uvloop.new_event_loop)
    return kind


base = handed_by(run)
clock = handed_by(run, 1)
