"""Collects the tests of a file when its turn comes, in the one worker that runs them.

Workers would otherwise all import every file and make an item of every test, and then run their
share of them: in a run by four, three quarters of that is for nothing. So a worker first only
lists files. For each it has two items: one stands for all the tests, and one for the file's end, so
that a worker can be told of its next file once the tests of this one are over, and no file waits
behind a long one.
"""

import gc
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

LATE: Final = "late_files"
"""Names what a worker is told of this."""


def is_late(config: pytest.Config) -> bool:
    """Whether the tests of a run may be collected late: it shares out files, and whole ones."""
    named = config.getoption("keyword") or any("::" in argument for argument in config.args)
    return config.getoption("dist") == "loadfile" and not named


def is_told(config: pytest.Config) -> bool:
    """Whether this process is a worker that first only lists files."""
    told: dict[str, object] = getattr(config, "workerinput", {})
    return bool(told.get(LATE))


class LateFile(pytest.File):
    """A file whose tests are collected when they run."""

    def collect(self) -> Iterator[pytest.Item]:
        yield AllTests.from_parent(self, name="tests")
        yield End.from_parent(self, name="end")


class AllTests(pytest.Item):
    """Stands for all the tests of a file."""

    def runtest(self) -> None:
        raise NotImplementedError  # `run` is called in its place

    def run(self, end: pytest.Item | None) -> None:
        """Collect the tests, and run each.

        Args:
            end: what follows, which keeps the fixtures that other files share.
        """
        session = self.session
        tests = self._collected()
        place = session.items.index(self)
        for test, following in pairwise([*tests, end]):
            assert test is not None
            session.items[place] = test  # xdist looks there for what a report is about
            self.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        session.items[place] = self

    def _collected(self) -> list[pytest.Item]:
        gc.disable()
        try:
            file = self.getparent(LateFile)
            assert file is not None
            module = pytest.Module.from_parent(file.parent, path=file.path)
            tests = [*self.session.genitems(module)]
            self.config.hook.pytest_collection_modifyitems(
                session=self.session, config=self.config, items=tests
            )
            return tests
        finally:
            gc.enable()


class End(pytest.Item):
    """The end of a file, which takes down what the next one does not share."""

    def runtest(self) -> None:
        pass


class LateScheduling(LoadFileScheduling):
    """Gives a worker its next file at the end of one, and not before."""

    _done = 0

    def _reschedule(self, node: WorkerController) -> None:
        if self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        super().mark_test_complete(node, item_index, duration)
        self._done += 1
        if is_late(self.config):
            self._estimate()

    def remove_node(self, node: WorkerController) -> str | None:
        """Leave to others what a worker that has crashed has not begun: all else is over."""
        units = self.assigned_work[node]
        self.assigned_work[node] = {
            name: units[name] for name in units if not all(units[name].values())
        }
        crashed = super().remove_node(node)
        if crashed is not None:
            self.workqueue[self._split_scope(crashed)][crashed] = True
        return crashed

    def _estimate(self) -> None:
        """Let the percentage that is shown be that of files: nobody has counted their tests."""
        plug_ins = self.config.pluginmanager
        session, terminal = plug_ins.get_plugin("session"), plug_ins.get_plugin("terminalreporter")
        if session is not None and terminal is not None and self.collection:
            tests = terminal.reported_progress * len(self.collection) // self._done
            session.testscollected = max(1, tests)
