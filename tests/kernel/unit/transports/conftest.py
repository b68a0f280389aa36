"""Transports on each loop that they are promised to run on, where a loop is what a test runs on."""

import asyncio

import pytest
import uvloop


@pytest.fixture(params=["asyncio", "uvloop"])
def kind_of_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have loops that are made in the test be of this kind."""
    kind: str = request.param
    if kind == "uvloop":
        for module in (asyncio, asyncio.events):
            monkeypatch.setattr(module, "new_event_loop", uvloop.new_event_loop)
    return kind
