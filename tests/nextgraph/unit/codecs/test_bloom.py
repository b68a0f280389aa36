from random import Random

import pytest

from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.bloom import BloomFilter, KnownDigests, make_filter

DIGESTS = [Random(nth).randbytes(32) for nth in range(2_000)]


def test_what_was_put_in_is_found_and_hardly_anything_else() -> None:
    made = make_filter(DIGESTS[:1_000], 1_000)
    assert len(made.f) == 32 * 106  # 27,000 bits
    known = KnownDigests(made)
    assert all(digest in known for digest in DIGESTS[:1_000])
    assert sum(digest in known for digest in DIGESTS[1_000:]) < 3


def test_an_empty_filter_knows_nothing() -> None:
    made = make_filter([], 0)
    assert made == BloomFilter(bytes(32))
    known = KnownDigests(made)
    assert not any(digest in known for digest in DIGESTS)


@pytest.mark.parametrize("size", [0, 1, 31, 33])
def test_a_filter_is_whole_buckets(size: int) -> None:
    with pytest.raises(CodecError) as caught:
        KnownDigests(BloomFilter(bytes(size)))
    assert caught.value.code == "bloom.size"
