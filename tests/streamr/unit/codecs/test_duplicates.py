import pytest

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.duplicates import ChainDuplicates, DuplicateDetector

ENDLESS = (float("inf"), float("inf"))


def detector_after(*pairs: tuple[int, int], gaps_max: int = 10_000) -> DuplicateDetector:
    """A detector that has seen the messages (previous, number), all fresh."""
    detector = DuplicateDetector(gaps_max=gaps_max)
    assert all(detector.check((previous, 0), (number, 0)) for previous, number in pairs)
    return detector


def test_message_is_fresh_once() -> None:
    detector = detector_after((1, 2), (2, 3))
    assert not detector.check((2, 0), (3, 0))
    assert not detector.check((1, 0), (2, 0))


def test_gap_is_filled_from_either_end_and_in_its_middle() -> None:
    detector = detector_after((0, 1), (9, 10))
    assert detector.gaps == [((1, 0), (9, 0)), ((10, 0), ENDLESS)]
    assert detector.check((8, 0), (9, 0))
    assert detector.check((1, 0), (2, 0))
    assert detector.check((4, 0), (5, 0))
    assert detector.gaps == [((2, 0), (4, 0)), ((5, 0), (8, 0)), ((10, 0), ENDLESS)]
    assert not detector.check((4, 0), (5, 0))
    assert not detector.check((8, 0), (9, 0))


def test_message_before_the_first_is_a_duplicate() -> None:
    assert not detector_after((9, 10)).check((3, 0), (4, 0))


def test_sequence_counts_within_a_millisecond() -> None:
    detector = DuplicateDetector()
    assert detector.check(None, (5, 0))
    assert detector.check((5, 0), (5, 1))
    assert not detector.check((5, 0), (5, 1))


@pytest.mark.parametrize("previous", [(5, 0), (6, 0), (5, 1)])
def test_predecessor_comes_before(previous: tuple[int, int]) -> None:
    detector = detector_after((0, 1))
    with pytest.raises(CodecError, match=r"duplicate\.numbering"):
        detector.check(previous, (5, 0))


@pytest.mark.parametrize(("previous", "number"), [(2, 4), (0, 2), (3, 11), (9, 11)])
def test_message_does_not_pass_over_what_was_seen(previous: int, number: int) -> None:
    detector = detector_after((0, 1), (3, 10))
    before = detector.gaps
    with pytest.raises(CodecError, match=r"duplicate\.overlap"):
        detector.check((previous, 0), (number, 0))
    assert detector.gaps == before


def test_lowest_gap_is_forgotten() -> None:
    detector = detector_after((0, 1), (3, 4), (6, 7), gaps_max=2)
    assert detector.gaps == [((4, 0), (6, 0)), ((7, 0), ENDLESS)]
    assert not detector.check((1, 0), (2, 0))


def test_chains_are_apart_and_publishers_without_case() -> None:
    chains = ChainDuplicates()
    assert chains.check("0xAB", "a", None, (1, 0))
    assert chains.check("0xAB", "b", None, (1, 0))
    assert chains.check("0xCD", "a", None, (1, 0))
    assert not chains.check("0xab", "a", None, (1, 0))


def test_longest_unused_chain_is_forgotten() -> None:
    chains = ChainDuplicates(chains_max=2)
    assert chains.check("p", "a", None, (1, 0))
    assert chains.check("p", "b", None, (1, 0))
    assert not chains.check("p", "a", None, (1, 0))
    assert chains.check("p", "c", None, (1, 0))
    assert not chains.check("p", "a", None, (1, 0))
    assert chains.check("p", "b", None, (1, 0))
