import pytest

from rillnode.actors.engine.worker import Worker
from rillnode.node.testing.contract.engines.parts import Echo


def test_a_worker_that_handles_nothing_is_not_made() -> None:
    class Idle(Worker):
        pass

    with pytest.raises(TypeError, match="handle"):
        Idle()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


def test_a_worker_outside_a_system_has_no_address() -> None:
    with pytest.raises(AttributeError):
        _ = Echo().address
