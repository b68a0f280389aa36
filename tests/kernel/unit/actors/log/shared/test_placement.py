"""Tests that what is decided together lies in one shard."""

import pytest

from rillnode.actors.log import log_id
from rillnode.actors.log.records import beside_log
from rillnode.actors.log.shared.placement import CATALOGUE, Placement
from rillnode.codecs.errors import StoreError


def by_user(name: str) -> str | None:
    return name.split("/")[1] if name.startswith("user/") else None


def test_a_stream_and_all_of_it_lie_in_one_shard() -> None:
    placement = Placement(16)
    for stream_id in (1, 15, 16, 17, 2**32 - 2):
        shard = placement.of_stream_id(stream_id)
        for partition in (0, 1, 2**32 - 1):
            log = log_id(stream_id, partition)
            assert placement.of_log(log) == shard
            assert placement.of_value(beside_log(log) + "x") == shard
            assert placement.of_value(beside_log(log)) == shard


def test_names_are_spread_and_stay_where_they_are() -> None:
    placement = Placement(16)
    shards = [placement.of_stream(f"stream-{number}") for number in range(1_000)]
    assert set(shards) == set(range(16))
    assert shards[:6] == [Placement(16).of_stream(f"stream-{number}") for number in range(6)]
    assert placement.of_stream("stream-0") == 3  # for ever
    assert 0 <= placement.of_stream("\ud800") < 16


def test_protocols_say_where_their_names_lie() -> None:
    placement = Placement(16, (lambda _: None, by_user))
    assert placement.of_value("user/ann/wallet") == placement.of_value("user/ann/inbox")
    assert placement.of_stream("user/ann/x") == placement.of_value("user/ann/inbox")
    assert placement.of_value("whatever") == CATALOGUE
    assert placement.of_value("beside/not a number/x") == CATALOGUE


def test_dead_letters_lie_with_their_origin() -> None:
    placement = Placement(16, (by_user,))
    for name in ("orders", "stream-0", "user/ann/x"):
        assert placement.of_stream(f"{name}.dead") == placement.of_stream(name)
        assert placement.of_stream(f"{name}.dead.dead") == placement.of_stream(name)


def test_values_of_several_shards_are_scattered() -> None:
    placement = Placement(16, (by_user,))
    assert placement.of_values([]) == CATALOGUE
    assert placement.of_values(["a", "b"]) == CATALOGUE
    names = [f"user/{number}/x" for number in range(20)]
    with pytest.raises(StoreError) as caught:
        placement.of_values(names)
    assert (caught.value.code, caught.value.retryable) == ("store.scattered", False)
