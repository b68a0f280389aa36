"""The window of numbers seen, against a plain set."""

from hypothesis import given, settings, strategies as st

from rillnode.codecs.ockam.channel_cipher import ReplayWindow
from rillnode.codecs.ockam.limits import CHANNEL_WINDOW_MESSAGES

SIZE = 16


@settings(deadline=None)
@given(st.lists(st.integers(0, 80) | st.sampled_from([2**64 - 2, 2**63, 1_000])))
def test_a_number_is_new_once_and_within_the_window_only(numbers: list[int]) -> None:
    window = ReplayWindow(SIZE)
    seen: set[int] = set()
    for number in numbers:
        highest = max(seen, default=-1)
        new = number not in seen and number > highest - SIZE
        assert window.is_new(number) is new
        if new:
            window.add(number)
            seen.add(number)


def test_a_jump_forgets_all_before_it() -> None:
    window = ReplayWindow()
    for number in range(10):
        window.add(number)
    window.add(CHANNEL_WINDOW_MESSAGES + 9)
    assert not window.is_new(9)
    assert window.is_new(10)
    assert not window.is_new(CHANNEL_WINDOW_MESSAGES + 9)
