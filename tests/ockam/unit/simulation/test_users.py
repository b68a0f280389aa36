"""What users of Ockam's stream protocols demand of an answer to a pull."""

from rillnode.node.ockam.simulation.users import all_fits
from rillnode.node.simulated.history import History, Log, Push

LOG: Log = ("events", 0)
ROOM = 1_000


def pushed(*sizes: int, seen: int, log: Log = LOG) -> History:
    """A history of entries that were pushed, the first of which somebody has seen."""
    history = History(lambda: 1.0)
    payloads = [b"%d" % number + bytes(size - 1) for number, size in enumerate(sizes)]
    for number, payload in enumerate(payloads):
        history.pushed({payload: Push("x0.1", number, log, 0.0)})
    history.saw("r0", log, list(enumerate(payloads[:seen])))
    return history


def test_an_answer_that_has_room_for_the_whole_log_is_whole() -> None:
    assert all_fits(pushed(400, 300, 300, seen=3), LOG, ROOM)
    assert all_fits(pushed(400, 300, 300, seen=1), LOG, ROOM)
    assert all_fits(pushed(2_000, seen=1, log=("others", 0)), LOG, ROOM)


def test_an_answer_may_end_before_a_block_that_ends_with_something_large() -> None:
    assert not all_fits(pushed(100, 100, 801, seen=3), LOG, ROOM)
    # Pushed together with what was asked for, and shown to nobody yet.
    assert not all_fits(pushed(100, 100, 801, seen=2), LOG, ROOM)
