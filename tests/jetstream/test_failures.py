"""Tests what JetStream's errors are for a store."""

import pytest

from rillnode.actors.jetstream.failures import Fault, refusal, told
from rillnode.actors.log.shared.port import LogLost
from rillnode.codecs.errors import StoreError


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(503, 10077, "maximum bytes exceeded"), "store.full"),
        (Fault(503, 10077, "maximum messages exceeded"), "store.full"),
        (Fault(503, 10023, "insufficient resources"), "store.full"),
        (Fault(400, 10002, "resource limits exceeded for account"), "store.full"),
        (Fault(500, 10047, "insufficient storage resources available"), "store.full"),
        (Fault(503, 10039, "jetstream not enabled for account"), "store.denied"),
        (Fault(400, 10054, "message size exceeds maximum allowed"), "store.too_large"),
        (Fault(400, 10109, "invalid operation on sealed stream"), "store.refused"),
    ],
)
def test_a_refusal_says_what_to_do(fault: Fault, code: str) -> None:
    error = refusal(fault)
    assert isinstance(error, StoreError)
    assert error.code == code
    assert fault.description in error.text


@pytest.mark.parametrize(
    "fault",
    [
        # Another replica may have stored it.
        Fault(503, 10077, "write /data/1.blk: no space left on device"),
        Fault(503, 10008, "JetStream system temporarily unavailable"),
        Fault(503, 10118, "stream is offline"),
        Fault(400, 10005, "no suitable peers for placement"),
        Fault(500, 10100, "something else"),
        Fault(),
    ],
)
def test_what_may_be_done_later_or_in_part_is_lost(fault: Fault) -> None:
    error = refusal(fault)
    assert isinstance(error, LogLost)
    assert fault.description in str(error)
    assert str(error)


def test_errors_of_connecting_say_something() -> None:
    assert told(TimeoutError()) == "it does not answer in time"
    assert told(OSError("refused")) == "refused"
    assert told(ConnectionResetError()) == "ConnectionResetError"
