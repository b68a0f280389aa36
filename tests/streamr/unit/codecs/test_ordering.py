from msgspec.structs import replace

from rillnode.codecs.streamr.ordering import (
    GapFound,
    GapSkipped,
    Ordered,
    OrderedChain,
    OrderedChains,
    OrderingEvent,
)
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage


def message(number: int, previous: int | None = None, *, size: int = 2) -> StreamMessage:
    return StreamMessage(
        id=MessageId("stream", 0, number, 0, "publisher", "chain"),
        content="x" * size,
        previous=None if previous is None else MessageRef(previous, 0),
    )


def delivered(events: list[OrderingEvent]) -> list[int]:
    return [event.message.id.timestamp for event in events if isinstance(event, Ordered)]


def chain_at(number: int, **limits: int) -> OrderedChain:
    """A chain that has delivered `number`."""
    chain = OrderedChain(**limits)
    assert delivered(chain.add(message(number), 0.0)) == [number]
    return chain


def test_first_message_is_taken_as_it_is() -> None:
    assert delivered(OrderedChain().add(message(5, 4), 0.0)) == [5]


def test_message_waits_for_its_predecessor() -> None:
    chain = chain_at(1)
    assert chain.add(message(4, 3), 0.0) == []
    assert chain.add(message(3, 2), 0.0) == []
    assert chain.waiting == 2
    assert delivered(chain.add(message(2, 1), 0.0)) == [2, 3, 4]
    assert (chain.waiting, chain.deadline) == (0, None)


def test_message_comes_once() -> None:
    chain = chain_at(1)
    assert chain.add(message(3, 2), 0.0) == []
    assert chain.add(message(3, 2), 0.0) == []
    assert delivered(chain.add(message(2, 1), 0.0)) == [2, 3]
    assert chain.add(message(3, 2), 0.0) == chain.add(message(1), 0.0) == []


def test_newer_message_without_predecessor_does_not_wait() -> None:
    chain = chain_at(1)
    assert chain.add(message(5, 4), 0.0) == []
    assert delivered(chain.add(message(9), 0.0)) == [9]
    assert chain.waiting == 0, "what is older than the last delivered never comes"


def test_predecessor_that_says_nothing_is_no_gap() -> None:
    chain = chain_at(5)
    assert delivered(chain.add(message(7, 3), 0.0)) == [7]
    assert delivered(chain.add(message(8, 9), 0.0)) == [8]


def test_gap_is_asked_for_again_and_again_and_then_skipped() -> None:
    chain = chain_at(1, requests_max=2)
    chain.add(message(4, 3), 10.0)
    chain.add(message(5, 4), 11.0)
    assert chain.deadline == 15.0
    assert chain.poll(14.9) == []
    gap = GapFound(publisher_id="publisher", chain_id="chain", first=(1, 1), last=(3, 0))
    assert chain.poll(15.0) == [gap]
    assert chain.deadline == 20.0
    assert chain.poll(20.0) == [gap]
    skipped, *rest = chain.poll(25.0)
    assert skipped == GapSkipped(
        publisher_id="publisher", chain_id="chain", first=(1, 1), last=(3, 0), requests=2
    )
    assert delivered(rest) == [4, 5]
    assert chain.deadline is None


def test_filled_gap_starts_the_next_one_anew() -> None:
    chain = chain_at(1)
    chain.add(message(3, 2), 0.0)
    chain.add(message(9, 8), 0.0)
    assert len(chain.poll(5.0)) == 1
    assert delivered(chain.add(message(2, 1), 6.0)) == [2, 3]
    assert chain.deadline == 11.0
    assert chain.poll(11.0) == [
        GapFound(publisher_id="publisher", chain_id="chain", first=(3, 1), last=(8, 0))
    ]


def test_without_requests_a_gap_is_skipped_at_once() -> None:
    skipped, *rest = chain_at(1, requests_max=0).add(message(4, 3), 0.0)
    assert isinstance(skipped, GapSkipped)
    assert delivered(rest) == [4]


def test_too_many_messages_do_not_wait() -> None:
    chain = chain_at(1, messages_max=2)
    chain.add(message(4, 3), 0.0)
    chain.add(message(7, 6), 0.0)
    assert delivered(chain.add(message(10, 9), 0.0)) == [4]
    assert chain.waiting == 2


def test_too_much_content_does_not_wait() -> None:
    chain = chain_at(1, bytes_max=100)
    chain.add(message(4, 3, size=60), 0.0)
    assert delivered(chain.add(message(7, 6, size=60), 0.0)) == [4]
    assert delivered(chain.add(message(9, 8, size=101), 0.0)) == [7, 9]
    assert chain.waiting == 0


def message_by(publisher_id: str, number: int, previous: int | None = None) -> StreamMessage:
    plain = message(number, previous)
    return replace(plain, id=plain.id._replace(publisher_id=publisher_id))


def test_flush_delivers_all_that_waits() -> None:
    chain = chain_at(1)
    chain.add(message(4, 3), 0.0)
    chain.add(message(8, 7), 0.0)
    assert delivered(chain.flush()) == [4, 8]
    assert chain.deadline is None


def test_chains_are_ordered_apart() -> None:
    chains = OrderedChains()
    assert delivered(chains.add(message_by("0xA", 1), 0.0)) == [1]
    assert delivered(chains.add(message_by("0xB", 1), 0.0)) == [1]
    assert chains.add(message_by("0xA", 3, 2), 0.0) == []
    assert chains.add(message_by("0xB", 5, 4), 1.0) == []
    assert chains.deadline == 5.0
    (gap,) = chains.poll(5.0)
    assert isinstance(gap, GapFound)
    assert (gap.publisher_id, chains.deadline) == ("0xA", 6.0)
    assert delivered(chains.add(message_by("0xa", 2, 1), 5.5)) == [2, 3]
    assert delivered(chains.add(message_by("0xb", 4, 1), 5.5)) == [4, 5]
    assert chains.deadline is None
    assert chains.poll(100.0) == []


def test_longest_unused_chain_is_flushed_and_forgotten() -> None:
    chains = OrderedChains(chains_max=2)
    chains.add(message_by("a", 1), 0.0)
    chains.add(message_by("b", 1), 0.0)
    chains.add(message_by("b", 4, 3), 0.0)
    chains.add(message_by("a", 2, 1), 0.0)
    assert delivered(chains.add(message_by("c", 1), 0.0)) == [4, 1]
    assert chains.deadline is None
    assert delivered(chains.add(message_by("b", 2), 0.0)) == [2]


def test_chains_skip_gaps_at_once_without_requests() -> None:
    chains = OrderedChains(requests_max=0)
    chains.add(message_by("a", 1), 0.0)
    assert delivered(chains.add(message_by("a", 4, 3), 0.0)) == [4]


def test_too_much_in_all_chains_skips_the_oldest_gap() -> None:
    for limits in ({"messages_max": 2}, {"bytes_max": 5}):
        chains = OrderedChains(**limits)
        for publisher_id in "abc":
            chains.add(message_by(publisher_id, 1), 0.0)
        assert chains.add(message_by("a", 4, 3), 0.0) == []
        assert chains.add(message_by("b", 5, 4), 0.0) == []
        assert delivered(chains.add(message_by("c", 6, 5), 0.0)) == [4]
        assert delivered(chains.add(message_by("b", 4, 1), 0.0)) == [4, 5]
        assert delivered(chains.add(message_by("c", 5, 1), 0.0)) == [5, 6]
        assert chains.deadline is None
