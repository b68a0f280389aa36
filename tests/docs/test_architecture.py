"""The page about the architecture has every actor, and what follows when it fails."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import rillnode.actors
from doc_support import ROOT
from rillnode.actors.engine.worker import Worker

pytestmark = pytest.mark.check


PAGE = ROOT / "docs/explanation/architecture.md"
FATES = {"resume": "goes on", "restart": "is restarted", "stop": "ends"}


def actor_classes() -> Iterator[type[Worker]]:
    """The classes of which there are actors.

    Left out are those that others only build on, and those that stand for another in traces.
    """
    for module in pkgutil.walk_packages(rillnode.actors.__path__, "rillnode.actors."):
        importlib.import_module(module.name)
    waiting = Worker.__subclasses__()
    while waiting:
        one = waiting.pop()
        if one.__module__.startswith("rillnode.actors."):
            heirs = [heir for heir in one.__subclasses__() if heir.stands_for is None]
            waiting += heirs
            if not heirs:
                yield one


def test_every_actor_is_in_the_table_with_its_fate() -> None:
    rows = re.findall(
        r"^\|[^|]*\| (`\w+`(?:, `\w+`)*) \|.*\| ([^|]*) \|$", PAGE.read_text("utf-8"), re.M
    )
    described = {
        (name, fate.partition(",")[0], fate.endswith(", essential"))
        for names, fate in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    assert described == {
        (one.__name__, FATES[one.on_failure], one.essential) for one in actor_classes()
    }
