"""Inputs that are nearly right: what a mutator makes of a corpus, the same for the same seed."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Literal

INPUT_BYTES_MAX: Final = 65_536
_CHANGES: Final = (1, 1, 1, 2, 3, 5)
"""How many changes one input gets: most wrong inputs differ from a right one in one place."""

COMMON_TOKENS: Final = (
    b"",
    b"\0",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x80\x00",  # a number that is not minimal
    b"\xff\xff\xff\xff\x0f",  # 2**32 - 1
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 2**64 - 1
    b"\xff" * 40,  # a number without end
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\0\0\0\x01",
    b"\x80\0\0\0\0\0\0\0",
    b"\xc3\x28",  # no UTF-8
    b"\xed\xa0\x80",  # half a surrogate pair
    b"\xf4\x90\x80\x80",  # above U+10FFFF
)
JSON_TOKENS: Final = (
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"-1",
    b"-0",
    b"1.0",
    b"1.5",
    b"1e999",
    b"1e19",
    b"9007199254740993",
    b"18446744073709551616",
    b"1" * 400,
    b"1" * 5_000,
    b"NaN",
    b'"\\ud800"',
    b'"\\u0000"',
    b"\\",
    b",",
    b":",
    b"[" * 20_000,
    b'{"a":' * 10_000,
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
)


class Mutator:
    """Makes inputs out of others: bits flipped, pieces cut, doubled, exchanged, lengths changed.

    Args:
        corpus: right inputs and such that were wrong once.
        tokens: pieces that mean something to what is tested.
        seed: the same gives the same inputs.
    """

    def __init__(self, corpus: Sequence[bytes], tokens: Sequence[bytes], seed: str) -> None:
        self._corpus = corpus
        self._tokens = tokens
        self._random = Random(seed)
        self._changes: tuple[Callable[[bytearray], None], ...] = (
            self._flip,
            self._set_byte,
            self._add_to_number,
            self._truncate,
            self._cut,
            self._repeat,
            self._insert_token,
            self._overwrite_with_token,
            self._splice,
        )

    def input(self) -> bytes:
        """The next input."""
        random = self._random
        data = bytearray(random.choice(self._corpus))
        for _ in range(random.choice(_CHANGES)):
            random.choice(self._changes)(data)
        return bytes(data[:INPUT_BYTES_MAX])

    def _at(self, data: bytearray) -> int:
        # Half of the changes are near the begin, where lengths, tags and versions stand.
        end = len(data)
        return self._random.randint(0, min(end, 16) if self._random.random() < 0.5 else end)

    def _piece(self, data: bytearray) -> slice:
        start = self._at(data)
        return slice(start, start + self._random.choice((1, 2, 4, 8, 32, 33, 128)))

    def _flip(self, data: bytearray) -> None:
        at = self._at(data)
        if at < len(data):
            data[at] ^= 1 << self._random.randrange(8)

    def _set_byte(self, data: bytearray) -> None:
        at = self._at(data)
        if at < len(data):
            data[at] = self._random.randrange(256)

    def _add_to_number(self, data: bytearray) -> None:
        """Change what may be a length: a number of 1, 2, 4 or 8 bytes of either order."""
        at, size = self._at(data), self._random.choice((1, 1, 2, 4, 8))
        order: Literal["big", "little"] = "big" if self._random.random() < 0.5 else "little"
        piece = data[at : at + size]
        if piece:
            number = int.from_bytes(piece, order) + self._random.choice((-32, -2, -1, 1, 2, 32))
            data[at : at + size] = (number % (1 << 8 * len(piece))).to_bytes(len(piece), order)

    def _truncate(self, data: bytearray) -> None:
        del data[self._at(data) :]

    def _cut(self, data: bytearray) -> None:
        del data[self._piece(data)]

    def _repeat(self, data: bytearray) -> None:
        piece = self._piece(data)
        times = self._random.choice((1, 1, 2, 8, 64, 1_000))
        data[piece.start : piece.start] = bytes(data[piece]) * times

    def _insert_token(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self._random.choice(self._tokens)

    def _overwrite_with_token(self, data: bytearray) -> None:
        at, token = self._at(data), self._random.choice(self._tokens)
        data[at : at + len(token)] = token

    def _splice(self, data: bytearray) -> None:
        """Go on as another input does."""
        other = self._random.choice(self._corpus)
        data[self._at(data) :] = other[self._random.randint(0, len(other)) :]
