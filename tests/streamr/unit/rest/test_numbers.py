"""Numbers of messages that come without."""

from itertools import count, pairwise

from hypothesis import given, strategies as st

from rillnode.node.streamr.rest.numbers import Numbers


def numbers() -> Numbers:
    serial = count(1)
    return Numbers(lambda size: next(serial).to_bytes(size, "big"))


@given(st.lists(st.integers(0, 5), max_size=30))
def test_numbers_go_up_whatever_the_clock_does(times: list[int]) -> None:
    given_ones = numbers()
    found = [given_ones.next(time) for time in times]
    assert all(low[:2] < high[:2] for low, high in pairwise(found))
    assert len({one.chain_id for one in found}) <= 1


def test_a_new_millisecond_begins_at_0() -> None:
    given_ones = numbers()
    assert [given_ones.next(time)[:2] for time in (5, 5, 6)] == [(5, 0), (5, 1), (6, 0)]


def test_another_chain_is_nobody_elses() -> None:
    given_ones = numbers()
    chains = {given_ones.other_chain(), given_ones.other_chain(), given_ones.next(1).chain_id}
    assert len(chains) == 3
