"""The loop of `rillnode run`: uvloop where it is installed, unless another is asked for."""

import asyncio
import sys

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.process import loop_factory


def made_by(name: str | None) -> type[asyncio.AbstractEventLoop]:
    with asyncio.Runner(loop_factory=loop_factory(name)) as runner:
        return type(runner.get_loop())


def test_uvloop_is_taken_where_it_is_installed() -> None:
    assert made_by(None) is made_by("uvloop")
    assert made_by("uvloop").__module__.startswith("uvloop")
    assert made_by("asyncio").__module__.startswith("asyncio")


def test_without_uvloop_asyncios_own_loop_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert made_by(None) is made_by("asyncio")
    with pytest.raises(ConfigError, match="uvloop is not installed here") as refused:
        loop_factory("uvloop")
    assert refused.value.code == "config.loop"
