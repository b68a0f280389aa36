"""A pytest plugin: Thespian's own suite gets our system base where it names its simplest one.

It collects the suite once, and forks a process for each further share of it. The environment says
how many there are and where they write what has come of them: SHARES, EXCLUDED (file of excluded
tests), RESULTS (directory of JSON files).
"""

import gc
import json
import os
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
import thespian.system
from thespian.actors import ActorSystem

from rillnode.actors.engine.system import AsyncioSystemBase


class ActorSystemBase(AsyncioSystemBase):
    """Our base, constructed as Thespian constructs one that it knows by name."""

    def __init__(self, system: ActorSystem, logDefs: Any = None) -> None:
        super().__init__(capabilities=system.capabilities)


def substitute(name: str) -> None:
    module = ModuleType(f"thespian.system.{name}")
    for holder, attribute, value in (
        (module, "ActorSystemBase", ActorSystemBase),
        (thespian.system, name, module),
    ):
        setattr(holder, attribute, value)
    sys.modules[module.__name__] = module


substitute("simpleSystemBase")


PATIENCE = 4
"""How many times as long a machine may take to answer that has other things to do."""


def wait_longer(module: Any) -> None:
    if hasattr(module, "max_response_delay"):
        module.max_response_delay *= PATIENCE


class Share:
    """Runs one share of the suite in each process, and counts."""

    def __init__(self) -> None:
        self._count = int(os.environ["SHARES"])
        self._index = 0
        tables = tomllib.loads(Path(os.environ["EXCLUDED"]).read_text())["excluded"]
        self._excluded = {test for table in tables for test in table["tests"]}
        self._found: set[str] = set()
        self._outcomes: Counter[str] = Counter()
        self._failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # The other bases are Thespian's own and start processes.
        ours = [item for item in items if "multiproc" not in item.name]
        for module in {cast(pytest.Function, item).module for item in ours}:
            wait_longer(module)
        names = {item: item.nodeid.rpartition("/")[2] for item in ours}
        self._found = self._excluded.intersection(names.values())
        kept = [item for item in ours if names[item] not in self._excluded]
        gc.freeze()  # nobody has to go through all that again
        for index in range(1, self._count):
            if not os.fork():
                self._index = index
                break
        items[:] = kept[self._index :: self._count]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.outcome] += 1
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        result = {
            "outcomes": self._outcomes,
            "failed": self._failed,
            "excluded_not_found": sorted(self._excluded - self._found),
        }
        Path(os.environ["RESULTS"], f"result-{self._index}.json").write_text(json.dumps(result))
        if not self._index:
            for _ in range(1, self._count):
                os.wait()

    def pytest_unconfigure(self) -> None:
        if self._index:
            sys.stdout.flush()
            os._exit(0)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Share())
