"""Any bytes give a message or a refusal, in memory and time linear in their length.

python -m pytest tests/fuzz -m long              # more inputs: a few minutes
FUZZ_SEED=7 python -m pytest tests/fuzz          # other inputs
"""

import os
from functools import partial
from typing import Final

import pytest

from fuzz.cost import lines_run, memory_peak
from fuzz.targets import CORPUS, SLOW, TARGETS, corpus, fuzz, is_taken, mutator, tokens

SEED: Final = int(os.environ.get("FUZZ_SEED", "1"))
INPUTS: Final = 1_000
INPUTS_IF_SLOW: Final = 100
LONG: Final = 100
"""How many times more inputs the long test makes."""

CORPUS_BYTES_MAX: Final = 300_000

MEASURED: Final = 60
MEMORY_BYTES: Final = 262_144
"""What an input may cost whatever its length: tables and keys that are made at the first use."""
MEMORY_FACTOR: Final = 64
"""Bytes for each of an input: a list of one-byte numbers costs the most."""

GROWTH: Final = (500, 2_000, 8_000)
"""Repetitions of a token; each four times the one before."""
LINES: Final = 500
"""Noise in a count of lines, such as of what is done once."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read_or_refused(name: str) -> None:
    for data in corpus(name):
        is_taken(name, data)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    fuzz(name, SEED, INPUTS_IF_SLOW if name in SLOW else INPUTS)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_many_bytes_are_read_or_refused(name: str) -> None:
    fuzz(name, SEED + 1, LONG * (INPUTS_IF_SLOW if name in SLOW else INPUTS))


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_linear_in_the_length(name: str) -> None:
    made = mutator(name, SEED + 2)
    for _ in range(MEASURED):
        data = made.input()
        peak = memory_peak(partial(is_taken, name, data))
        assert peak <= MEMORY_BYTES + MEMORY_FACTOR * len(data), data.hex()


@pytest.mark.parametrize("name", sorted(set(TARGETS) - SLOW))
def test_work_is_linear_in_the_length(name: str) -> None:
    """Behind the begin of a right input a token comes again and again."""
    seed = corpus(name)[0]
    short = [token for token in tokens(name) if 0 < len(token) < 4]
    for start in (seed[:1], seed[: len(seed) // 2], seed):
        for token in short:
            few, more, most = (
                lines_run(partial(is_taken, name, start + token * times)) for times in GROWTH
            )
            assert most - more <= 4 * (more - few) * 1.1 + LINES, (start, token)


def test_the_corpus_is_whole_and_small() -> None:
    stored = {name: path.stat().st_size for name, path in CORPUS.items()}
    assert stored.keys() == TARGETS.keys()
    assert sum(stored.values()) < CORPUS_BYTES_MAX
    # A target that takes nothing of its corpus would test its first line only.
    refusing = {name for name in TARGETS if not any(is_taken(name, one) for one in corpus(name))}
    assert refusing <= {"nextgraph_block"}  # it opens with a key that is none of these blocks'


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, second, other = (mutator("bare", seed) for seed in (1, 1, 2))
    inputs = [first.input() for _ in range(50)]
    assert inputs == [second.input() for _ in range(50)]
    assert inputs != [other.input() for _ in range(50)]
