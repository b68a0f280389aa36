"""Lets tests be coroutines: each runs in an event loop of its own, with what it is handed.

A test that asks for nothing that is handed is run alone. One that asks for `core`, say, where that
is `handed_by(with_core)`, is run by `with_core`, which makes a core and takes it down again.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

LIMIT_SECONDS: Final = 300.0
"""A test of the quick part that is run alone and waits longer has failed."""

run_with = pytest.mark.run_with
"""Marks a test with what its runner is called with: `@run_with(quotas=[...])`."""


@dataclass(frozen=True, slots=True)
class Handed:
    """Stands for a value until the runner of a test hands it over.

    Attributes:
        runner: is called with a coroutine function, and calls that with what it has made.
        run: the runner, with what it is given before what the test is marked with.
        place: of the value among what the runner hands over.
    """

    runner: Callable[..., object]
    run: Callable[..., object]
    place: int


def handed_by(
    runner: Callable[..., object], place: int = 0, *, of: Callable[[Path], object] | None = None
) -> Any:
    """A fixture: what a runner hands to its test in this place.

    A runner that has a parameter `directory` is given an empty one. `of` makes the first argument
    of a runner, before the test, of an empty directory.
    """
    names = list(inspect.signature(runner).parameters)

    @pytest.fixture
    def handed(request: pytest.FixtureRequest) -> Handed:
        if of is None and "directory" not in names:
            return Handed(runner, runner, place)
        directory = request.getfixturevalue("tmp_path")
        if of is None and names[0] != "directory":
            return Handed(runner, partial(runner, directory=directory), place)
        return Handed(runner, partial(runner, directory if of is None else of(directory)), place)

    return handed


def run_test(item: pytest.Function) -> None:
    """Run a test that is a coroutine function."""
    test: Callable[..., Any] = item.obj
    values = {name: item.funcargs[name] for name in inspect.signature(test).parameters}
    handed = {name: value for name, value in values.items() if isinstance(value, Handed)}

    limit = None if item.get_closest_marker("long") else LIMIT_SECONDS

    async def alone() -> None:
        async with asyncio.timeout(limit):
            await test(**values)

    if not handed:
        asyncio.run(alone())
        return

    async def with_values(*made: Any) -> None:
        await test(**values | {name: made[value.place] for name, value in handed.items()})

    runners = {value.runner.__qualname__ for value in handed.values()}
    assert len(runners) == 1, f"{item.nodeid} cannot be run by several at once: {runners}"
    mark = item.get_closest_marker("run_with") or run_with().mark
    next(iter(handed.values())).run(with_values, *mark.args, **mark.kwargs)
