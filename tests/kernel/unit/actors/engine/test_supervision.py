import logging
from typing import Any

import pytest

from actor_support import run
from link_support import ManualClock
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.node.testing.contract.engines.parts import Boom, Probe, boom


class Stopping(Probe):
    on_failure = "stop"


async def test_a_start_that_fails_leaves_no_instance_and_no_timer(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class BadStart(Probe):
        def started(self) -> None:
            self.wake_after(1.0, "never")
            boom()

    cell = base.spawn(BadStart)
    await base.drain()
    assert cell.instance is None
    assert cell.owned is None
    assert clock.timers == 0


async def test_an_unknown_policy_is_refused(base: AsyncioSystemBase) -> None:
    policy: Any = "retry"
    wrong = type("Wrong", (Probe,), {"on_failure": policy})
    with pytest.raises(ValueError, match="on_failure is 'retry', not one of"):
        base.spawn(wrong)


def test_every_failure_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def test(base: AsyncioSystemBase, _: ManualClock) -> Cell:
        cell = base.spawn(Stopping, name="fragile")
        base.post(cell, boom)
        await base.drain()
        return cell

    run(test)
    failed, stopped = [one for one in caplog.records if one.name.startswith("rillnode.")]
    assert failed.msg == "actor_failed"
    assert failed.exc_info is not None
    assert isinstance(failed.exc_info[1], Boom)
    assert vars(failed)["actor"] == "fragile"
    assert vars(failed)["doing"] == "function"
    assert stopped.msg == "actor_stopped_by_failure"
    assert stopped.levelno == logging.ERROR
